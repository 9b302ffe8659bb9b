package archive

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/event"
)

// Format is the name of the format that this package writes and reads.
const Format = "starling-host/1"

// maxLine bounds a line: the largest payload in hexadecimal, and once more with
// every character of it escaped.
const maxLine = 10*eventlog.MaxPayloadBytes + 1<<20

// Report says what is in an archive.
type Report struct {
	Runs, Events, Modules int
	Sealed                int // runs that are encrypted, of which neither keys nor modules are in the archive
	Known                 int // runs that [Import] found in the log, as far as they go in the archive
}

// add counts a run that was checked.
func (r *Report) add(run eventlog.Report) {
	r.Runs++
	if run.Sealed > 0 {
		r.Sealed++
	}
}

func firstLine() []byte { return []byte(`{"archive":"` + Format + `"}`) }

func moduleLine(digest chain.Hash, wasm []byte) []byte {
	line := fmt.Appendf(make([]byte, 0, 2*len(wasm)), `{"module":"%v","wasm":"`, digest)
	return append(base64.StdEncoding.AppendEncode(line, wasm), `"}`...)
}

func lastLine(r Report, hash chain.Hash) []byte {
	return fmt.Appendf(nil, `{"events":%d,"hash":"%v","modules":%d,"runs":%d}`, r.Events, hash, r.Modules, r.Runs)
}

// line is any line of an archive. Which one it is, its first key tells.
type line struct {
	Archive  *string `json:"archive"`
	Module   *string `json:"module"`
	Wasm     []byte  `json:"wasm"`
	Envelope *string `json:"envelope"`
	Events   *int    `json:"events"`
}

// parseLine understands a line, as far as it has to be understood to be made
// again.
func parseLine(text []byte) (l line, err error) {
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("no line of an archive: %w", err)
	}
	if l.Archive == nil && l.Module == nil && l.Envelope == nil && l.Events == nil {
		return l, errors.New("a line that is neither an event nor a module")
	}
	return l, nil
}

// event returns the event of the line, and the line as it has to be.
func (l line) event() (e event.Event, again []byte, err error) {
	envelope, err := hex.DecodeString(*l.Envelope)
	if err != nil {
		return e, nil, fmt.Errorf("the envelope is not hexadecimal: %w", err)
	}
	if e, err = event.Unmarshal(envelope); err != nil {
		return e, nil, err
	}
	again, err = event.ToJSON(e)
	return e, again, err
}

// modulesOf returns the digests that the first event of a run names. Of a run that
// is sealed they cannot be seen.
func modulesOf(first event.Event) (digests []chain.Hash, err error) {
	started, err := first.AsRunStarted()
	if errors.Is(err, event.ErrSealed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, ref := range started.ToolSchemas {
		if ref.Sandbox == nil {
			continue
		}
		if len(ref.Sandbox.Module) != len(chain.Hash{}) {
			return nil, fmt.Errorf("the digest of the module of tool %q has %d bytes", ref.Name, len(ref.Sandbox.Module))
		}
		digests = append(digests, chain.Hash(ref.Sandbox.Module))
	}
	return digests, nil
}
