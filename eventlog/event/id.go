package event

import (
	"crypto/rand"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/chain"
)

// NewID returns a new ULID: 26 characters that sort by the millisecond of
// their making and end in 80 bits from crypto/rand.
func NewID() string {
	return ulid.MustNew(ulid.Now(), rand.Reader).String()
}

// FirstID returns what sorts before every id that [NewID] returns from that millisecond on,
// and behind all that it has returned before.
func FirstID(at time.Time) string {
	var id ulid.ULID
	_ = id.SetTime(uint64(max(at.UnixMilli(), 0))) // an error beyond the year 10889
	return id.String()
}

// RegistryHash returns RunStarted.ToolRegistryHash of the references, which
// must be sorted by name: BLAKE3 of an array with one map of name and
// schema_hash for each. It is nil when there are none. The fields that this
// project adds to a reference are not covered, so that the hash means what it
// means in the Starling format.
func RegistryHash(refs []ToolSchemaRef) []byte {
	if len(refs) == 0 {
		return nil
	}
	b := canon.AppendArray(nil, len(refs))
	for _, r := range refs {
		b = canon.AppendMap(b, 2)
		b = canon.AppendText(canon.AppendText(b, "name"), r.Name)
		b = canon.AppendBytes(canon.AppendText(b, "schema_hash"), r.SchemaHash)
	}
	h := chain.Sum(b)
	return h[:]
}
