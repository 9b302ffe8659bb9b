package event

import (
	"encoding/hex"
	"strconv"

	"github.com/starling-host/starling/eventlog/canon"
)

// ToJSON returns e as one line of JSON without a line feed, for export. The
// keys are envelope and hash (both hexadecimal), kind (its name), payload (as
// [canon.Render] shows it), run_id, seq and ts.
//
// Nothing is lost: envelope is the event, the rest is there to be read. A
// reader who must be sure decodes envelope and compares its BLAKE3 with hash.
func ToJSON(e Event) ([]byte, error) {
	envelope, err := Marshal(e)
	if err != nil {
		return nil, err
	}
	payload, err := canon.Render(e.Payload)
	if err != nil {
		return nil, err
	}
	line := make([]byte, 0, 2*len(envelope)+len(payload)+256)
	line = append(line, `{"envelope":"`...)
	line = hex.AppendEncode(line, envelope)
	line = append(line, `","hash":"`...)
	line = append(line, Hash(envelope).String()...)
	line = append(line, `","kind":"`...)
	line = append(line, e.Kind.String()...)
	line = append(line, `","payload":`...)
	line = append(line, payload...)
	line = append(line, `,"run_id":`...)
	line = canon.AppendString(line, e.RunID)
	line = append(line, `,"seq":`...)
	line = strconv.AppendUint(line, e.Seq, 10)
	line = append(line, `,"ts":`...)
	line = strconv.AppendInt(line, e.Timestamp, 10)
	return append(line, '}'), nil
}
