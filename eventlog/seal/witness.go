package seal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/starling-host/starling/internal/keyfile"
)

// Witness cosigns checkpoints of logs that it has seen grow consistently. It keeps the
// newest checkpoint of each log in one file, which any number of processes may share. It
// answers as c2sp.org/tlog-witness specifies. It is safe for concurrent use.
type Witness struct {
	key  *Key
	logs *Policy
	file string
}

// seen is the newest checkpoint of a log.
type seen struct {
	Leaves int64  `json:"leaves"`
	Root   string `json:"root"`
}

// OpenWitness returns the witness with that key, whose state is in the file. It cosigns
// the logs whose keys the policy names.
func OpenWitness(key *Key, logs *Policy, file string) (*Witness, error) {
	w := &Witness{key: key, logs: logs, file: file}
	unlock, err := w.lock() // report a missing folder at once
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err = os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return w, w.save(map[string]seen{})
	}
	_, err = w.load()
	return w, err
}

// lock keeps other processes from the state, from reading it until the new one is on
// disk: otherwise two processes could each cosign a different history.
func (w *Witness) lock() (unlock func(), err error) { return keyfile.Lock(w.file + ".lock") }

func (w *Witness) load() (all map[string]seen, err error) {
	text, err := keyfile.ReadFile(w.file, keyfile.MaxBytes)
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err = dec.Decode(&all); err != nil || all == nil {
			err = fmt.Errorf("seal: the state of the witness in %s is damaged: %w", w.file, err)
		}
	}
	return all, err
}

// Conflict is the error of a checkpoint that does not begin where the witness stands.
type Conflict struct{ Leaves int64 }

// Error names the size that the witness has seen.
func (c *Conflict) Error() string {
	return fmt.Sprintf("seal: the witness has seen %d leaves of this log", c.Leaves)
}

// Errors of [Witness.Add].
var (
	ErrMalformed    = errors.New("seal: this is not a request to a witness")
	ErrUnknownLog   = errors.New("seal: the witness does not know the log")
	ErrInconsistent = errors.New("seal: the checkpoint is not consistent with the last one that the witness saw")
)

// Request is a request to a witness.
type Request struct {
	Old    int64  // leaves of the checkpoint that the witness has seen
	Proof  []Hash // of consistency, from there
	Signed []byte // the checkpoint
}

// Text returns the body of the request.
func (r Request) Text() []byte {
	b := fmt.Appendf(nil, "old %d\n", r.Old)
	for _, h := range r.Proof {
		b = fmt.Appendf(b, "%s\n", h)
	}
	return append(append(b, '\n'), r.Signed...)
}

// ParseRequest reads the body of a request.
func ParseRequest(body []byte) (r Request, err error) {
	head, signed, ok := bytes.Cut(body, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	digits, isOld := strings.CutPrefix(lines[0], "old ")
	if r.Old, err = strconv.ParseInt(digits, 10, 64); err != nil || !ok || !isOld || r.Old < 0 || len(lines) > 1+maxProofHashes {
		return r, fmt.Errorf("%w: want \"old N\", the hashes of a proof, an empty line and a checkpoint", ErrMalformed)
	}
	for _, line := range lines[1:] {
		h, err := tlog.ParseHash(line)
		if err != nil {
			return r, fmt.Errorf("%w: %.80q is not a hash", ErrMalformed, line)
		}
		r.Proof = append(r.Proof, h)
	}
	r.Signed = signed
	return r, nil
}

// Add checks a checkpoint against the newest one that the witness has seen of its log, keeps
// it, and returns the line of its cosignature once that is on disk. Errors are
// [ErrMalformed], [ErrUnknownLog], [ErrUntrusted], [*Conflict], [ErrInconsistent], or of the
// disk.
func (w *Witness) Add(body []byte, now time.Time) (line []byte, err error) {
	r, err := ParseRequest(body)
	if err != nil {
		return nil, err
	}
	c, err := ParseCheckpoint(r.Signed)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	if len(w.logs.of(c.Origin)) == 0 {
		return nil, fmt.Errorf("%w %s", ErrUnknownLog, c.Origin)
	}
	if c, _, err = w.logs.Check(r.Signed); err != nil && !errors.Is(err, ErrUntrusted) {
		err = fmt.Errorf("%w: %s", ErrUntrusted, plain(err))
	}
	if err != nil {
		return nil, err
	}
	unlock, err := w.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	all, err := w.load()
	if err != nil {
		return nil, err
	}
	last, known := all[c.Origin]
	switch {
	case r.Old > c.Leaves:
		return nil, fmt.Errorf("%w: old is %d, the checkpoint has %d leaves", ErrMalformed, r.Old, c.Leaves)
	case r.Old != last.Leaves:
		return nil, &Conflict{last.Leaves}
	case r.Old == c.Leaves && known && last.Root != c.Root.String():
		return nil, &Conflict{last.Leaves}
	case (r.Old == 0 || r.Old == c.Leaves) && len(r.Proof) > 0:
		return nil, fmt.Errorf("%w: a proof where there is nothing to prove", ErrInconsistent)
	case r.Old > 0 && r.Old < c.Leaves:
		old, err := tlog.ParseHash(last.Root)
		if err != nil {
			return nil, err
		}
		if tlog.CheckTree(r.Proof, c.Leaves, c.Root, r.Old, old) != nil {
			return nil, ErrInconsistent
		}
	}
	if last.Leaves != c.Leaves || !known {
		all[c.Origin] = seen{c.Leaves, c.Root.String()}
		if err := w.save(all); err != nil {
			return nil, err
		}
	}
	return Cosign(r.Signed, w.key, now)
}

// save replaces the file. If the process dies here, the file has every checkpoint answered
// before.
func (w *Witness) save(all map[string]seen) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return keyfile.Replace(w.file, append(text, '\n'), 0o600)
}
