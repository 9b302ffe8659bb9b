package replay

import "github.com/starling-host/starling/eventlog/event"

// What a [Document] can say of a replay.
const (
	Identical   = "identical"
	Diverged    = "diverged"
	Invalid     = "invalid"      // the log is not valid; nothing was executed
	NotReplayed = "not_replayed" // the run cannot be executed
)

// Document is what came of a replay, as it is written in JSON: the command line
// and the HTTP API say the same.
type Document struct {
	RunID      string              `json:"run_id"`
	Verdict    string              `json:"verdict"`
	Events     int                 `json:"events,omitempty"`
	Open       bool                `json:"open,omitempty"`
	Divergence *DivergenceDocument `json:"divergence,omitempty"`
	Error      string              `json:"error,omitempty"` // of what is invalid or not replayed
}

// DivergenceDocument is a [Divergence] in JSON, its kinds by [KindName].
type DivergenceDocument struct {
	Seq          uint64 `json:"seq"`
	Kind         string `json:"kind"`
	ExpectedKind string `json:"expected_kind"`
	Class        string `json:"class"`
	Field        string `json:"field,omitempty"`
	Expected     string `json:"expected,omitempty"`
	Got          string `json:"got,omitempty"`
	Reason       string `json:"reason,omitempty"`
}

// Document returns what a replay of a run found. The run is named by the caller,
// who may know it by another id than the log does.
func (v Verdict) Document(runID string) Document {
	doc := Document{RunID: runID, Verdict: Identical, Events: v.Events, Open: v.Open}
	if d := v.Divergence; d != nil {
		doc.Verdict = Diverged
		doc.Divergence = &DivergenceDocument{
			Seq: d.Seq, Kind: KindName(d.Kind), ExpectedKind: KindName(d.ExpectedKind), Class: string(d.Class),
			Field: d.Field, Expected: d.Expected, Got: d.Got, Reason: d.Reason,
		}
	}
	return doc
}

// KindName names a kind of a [Divergence], where zero stands for the end of the run.
func KindName(k event.Kind) string {
	if k == 0 {
		return "end of the run"
	}
	return k.String()
}
