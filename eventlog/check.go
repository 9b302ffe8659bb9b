package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/event"
)

// CheckOptions says how much [Check] asks of a run. Its zero value is the
// profile of [Validate].
type CheckOptions struct {
	// Strict adds the rules S1 to S6. Everything that this project writes
	// keeps them; runs that other programs wrote may not.
	Strict bool
	// AllowOpen accepts a run without a terminal event: one that is in
	// progress, or that a crash ended.
	AllowOpen bool
}

// Report is what a check found of a run that is in order.
type Report struct {
	Events   uint64
	Sealed   uint64     // events whose payloads are encrypted: all of them or none
	Open     bool       // there is no terminal event
	Terminal event.Kind // zero when Open
	Head     chain.Hash // of the last event
	Root     chain.Hash // Merkle root over the hashes of all events but the terminal one
	HeadKept bool       // the last event was held against a head that the log keeps apart
}

// Validate checks the eight invariants of a finished run. Its error is a
// [*CorruptError].
func Validate(events []event.Event) error {
	_, err := Check(events, CheckOptions{})
	return err
}

// Check reports whether events are one whole run:
//
//	D1  there is a first event, numbered 1, and no number is missing
//	D2  all events name the same run
//	D3  every event carries the hash of the one before it, the first none
//	D4  there is exactly one terminal event, and it is the last
//	D5  the first event is RunStarted, of a schema version that is known; of a run of
//	    a later version nothing else is checked, and its error is [ErrSchemaTooNew]
//	D6  a turn is closed by its answer or by its budget before the next begins;
//	    only a failed or cancelled run may end inside one
//	D7  every scheduled attempt of a call has exactly one outcome, and no
//	    outcome comes unscheduled
//	D8  the terminal event carries the Merkle root of all events before it
//
// RunResumed is a reset point for what is pending: a turn and calls that were
// open when the earlier process died need no end. What is finished stays
// finished.
//
// Strict asks in addition:
//
//	S1  every kind is one of the closed set
//	S2  every payload is canonical, and exactly what its kind's struct encodes:
//	    no unknown field, no missing one
//	S3  there is one RunStarted
//	S4  the attempts of a call count up from 1, none begins while another is
//	    open, and none is used twice
//	S5  effects and nested calls name a call that is open
//	S6  payloads and run ids keep the limits of this package
//
// Clocks may step backwards, so nothing is asked of timestamps.
//
// Of a run whose payloads are encrypted ([event.Sealed]) all is checked that is
// visible: D1 to D4 and D8 as above, over what is stored; D5 without the version;
// D6 and D7 by the kinds and their order alone, so that a run that the key shows to
// be wrong may pass; S1, S3, S6, and of S2 that the sealed payload has its exact
// form. Either all events of a run are sealed or none is. Checking it through the
// log that holds the key checks everything.
//
// The error is a [*CorruptError]. A change inside one event is reported at that
// event, not at its successor, whose PrevHash no longer fits: the link from
// there on, or the Merkle root, tells which of the two was changed.
func Check(events []event.Event, o CheckOptions) (Report, error) {
	c := NewChecker(o)
	for _, e := range events {
		if err := c.Add(e); err != nil {
			return Report{}, err
		}
	}
	return c.Finish()
}

// CheckRun checks a run as it is stored, piece by piece, so that memory stays
// flat. Where the log keeps heads ([RunFinder]), the whole summary is computed
// again and compared, so that a change in the last event is noticed as well.
func CheckRun(ctx context.Context, log EventLog, runID string, o CheckOptions) (Report, error) {
	kept, err := keptSummary(ctx, log, runID)
	if err != nil {
		return Report{}, err
	}
	c := NewChecker(o)
	c.kept, c.runID = kept, runID
	for e, err := range Events(ctx, log, runID, 0) {
		if err == nil {
			err = c.Add(e)
		}
		if err != nil && !(errors.Is(err, ErrRunNotFound) && c.promised() > 0) {
			return Report{}, err
		}
	}
	return c.Finish()
}

// keptSummary returns what the log keeps of a run apart from its events, nil when that is
// nothing.
func keptSummary(ctx context.Context, log EventLog, runID string) (*RunSummary, error) {
	f, ok := log.(RunFinder)
	if !ok {
		return nil, nil
	}
	s, err := f.Run(ctx, runID)
	if errors.Is(err, ErrRunNotFound) || err == nil && s.Head == (chain.Hash{}) {
		return nil, nil
	}
	return &s, err
}

// Checker checks a run that is handed to it event by event. Its memory grows
// with the calls that are open, in strict mode with the calls of the run. Use
// [NewChecker].
type Checker struct {
	opts  CheckOptions
	kept  *RunSummary // what the backend keeps apart; nil when it keeps nothing
	runID string

	at      Cursor // behind the last event that was added
	last    event.Kind
	tree    chain.Tree
	broken  bool // the last event does not carry its predecessor's hash
	before  event.Kind
	pairs   pairs
	sealed  uint64 // events so far that are
	hidden  hiddenPairs
	scratch []byte
}

// NewChecker returns a checker that has seen nothing.
func NewChecker(o CheckOptions) *Checker {
	return &Checker{opts: o, pairs: newPairs(o.Strict)}
}

// Add checks the next event. After an error the checker is of no more use.
func (c *Checker) Add(e event.Event) error {
	if c.broken {
		return c.blame(bytes.Equal(e.PrevHash, c.at.run.Head[:]))
	}
	if err := c.place(e); err != nil {
		return err
	}
	c.broken = !c.linked(e)
	if c.broken && c.at.run.LastSeq == 0 {
		return corrupt(e, "D3", "the first event carries the hash of a predecessor")
	}
	if !c.broken {
		if err := c.meaning(e); err != nil {
			return err
		}
	}
	return c.advance(e)
}

// place checks what the envelope says about where the event belongs.
func (c *Checker) place(e event.Event) error {
	at := &c.at.run
	switch {
	case at.LastSeq == 0 && e.RunID == "":
		return corrupt(e, "D2", "the event names no run")
	case at.LastSeq > 0 && e.RunID != at.RunID:
		return corrupt(e, "D2", "the event names run %q in the middle of run %q", e.RunID, at.RunID)
	case at.TerminalKind != 0:
		return c.corruptLast("D4", "the terminal event is not the last: event %d follows", e.Seq)
	case e.Seq != at.LastSeq+1:
		return c.missing(e)
	}
	return nil
}

// missing reports the number that should have come, not the one that came.
func (c *Checker) missing(e event.Event) error {
	want := c.at.run.LastSeq + 1
	return &CorruptError{RunID: e.RunID, Seq: want, Invariant: "D1",
		Reason: fmt.Sprintf("event %d is missing; event %d (%v) comes in its place", want, e.Seq, e.Kind)}
}

func (c *Checker) linked(e event.Event) bool {
	if c.at.run.LastSeq == 0 {
		return len(e.PrevHash) == 0
	}
	return bytes.Equal(e.PrevHash, c.at.run.Head[:])
}

// meaning checks the payload: the first event's version, the pairs, the root
// and the rules of strict mode.
func (c *Checker) meaning(e event.Event) error {
	s, sealed := event.AsSealed(e.Payload)
	if first := c.at.run.LastSeq == 0; !first && sealed != (c.sealed > 0) {
		return c.mixed(e, sealed)
	}
	if sealed {
		return c.sealedMeaning(e, s)
	}
	first := c.at.run.LastSeq == 0
	var start error
	if first {
		if start = checkStart(e); errors.Is(start, ErrSchemaTooNew) { // which may have other payloads
			return start
		}
	}
	if c.opts.Strict {
		if err := strictEvent(e, first); err != nil {
			return err
		}
	}
	if start != nil {
		return start
	}
	if err := c.pairs.add(e); err != nil {
		return err
	}
	return c.checkRoot(e)
}

func (c *Checker) checkRoot(e event.Event) error {
	if e.Kind.Terminal() && !c.rootFits(e) {
		return corrupt(e, "D8", "the Merkle root is not that of the %d events before it, %v", c.at.run.LastSeq, c.tree.Root())
	}
	return nil
}

func checkStart(e event.Event) error {
	if e.Kind != event.KindRunStarted {
		return corrupt(e, "D5", "the first event is %v, not RunStarted", e.Kind)
	}
	var p struct {
		SchemaVersion uint32 `cbor:"schema_version"`
	}
	if err := decodePart(e, "D5", &p); err != nil {
		return err
	}
	switch {
	case p.SchemaVersion > event.SchemaVersion:
		return &CorruptError{RunID: e.RunID, Seq: e.Seq, Kind: e.Kind, Invariant: "D5", Newer: true,
			Reason: fmt.Sprintf("schema version %d, where this program knows %d", p.SchemaVersion, event.SchemaVersion)}
	case p.SchemaVersion < 1:
		return corrupt(e, "D5", "schema version 0")
	}
	return nil
}

// rootFits reports whether the terminal event e carries the root of all events
// that were added before it.
func (c *Checker) rootFits(e event.Event) bool {
	var p struct {
		MerkleRoot []byte `cbor:"merkle_root"`
	}
	root := c.tree.Root()
	return decodePart(e, "D8", &p) == nil && bytes.Equal(p.MerkleRoot, root[:])
}

// advance moves behind e. A broken link at the end of the run is decided here,
// by the Merkle root or by the head that the log keeps.
func (c *Checker) advance(e event.Event) error {
	if c.broken && e.Kind.Terminal() {
		return c.blameNow(e, c.rootFits(e))
	}
	c.scratch = event.AppendEnvelope(c.scratch[:0], e)
	hash := event.Hash(c.scratch)
	c.before, c.last = c.last, e.Kind
	c.at.advance(e, hash)
	if !e.Kind.Terminal() {
		c.tree.Add(hash)
	}
	if c.kept != nil && c.kept.LastSeq == e.Seq {
		return c.compareKept(e)
	}
	return nil
}

// compareKept holds the run, now that it has reached the event that the log's
// own summary ends with, against that summary.
func (c *Checker) compareKept(e event.Event) error {
	got, kept := c.at.run, *c.kept
	if c.broken {
		return c.blame(got.Head == kept.Head)
	}
	if got.Head != kept.Head {
		return corrupt(e, "head", "the hash is %v; the log keeps %v for it", got.Head, kept.Head)
	}
	if got != kept {
		return corrupt(e, "head", "the log's summary of the run does not fit its events: %s", firstMisfit(kept, got))
	}
	return nil
}

// firstMisfit says in what two summaries of a run differ first.
func firstMisfit(kept, got RunSummary) string {
	k, g := reflect.ValueOf(kept), reflect.ValueOf(got)
	for i := range k.NumField() {
		if !k.Field(i).Equal(g.Field(i)) {
			return fmt.Sprintf("%s is %v, by the events it is %v", k.Type().Field(i).Name, k.Field(i), g.Field(i))
		}
	}
	return "nothing differs"
}

// blameNow decides a broken link between the last event and the terminal event
// e, which has not been added: when the root fits, all before e is intact.
func (c *Checker) blameNow(e event.Event, rootFits bool) error {
	if rootFits {
		return corrupt(e, "D3", "PrevHash is not the hash of event %d; the Merkle root shows that this event was changed", e.Seq-1)
	}
	return c.corruptLast("D3", "the event was changed: its hash is not the one that event %d carries", e.Seq)
}

// blame decides a broken link between the last two events. When what follows,
// a further event or the head, fits the last one, then that one is intact, and
// the one before it was changed.
func (c *Checker) blame(lastIntact bool) error {
	at := c.at.run
	if lastIntact {
		return &CorruptError{RunID: at.RunID, Seq: at.LastSeq - 1, Kind: c.before, Invariant: "D3",
			Reason: fmt.Sprintf("the event was changed: its hash is not the one that event %d carries", at.LastSeq)}
	}
	return c.corruptLast("D3", "PrevHash is not the hash of event %d, and the event's own hash is not the one that was recorded: this event was changed", at.LastSeq-1)
}

// promised is how many events the log says that the run has.
func (c *Checker) promised() uint64 {
	if c.kept == nil {
		return 0
	}
	return c.kept.LastSeq
}

// Finish checks what only the end of a run shows.
func (c *Checker) Finish() (Report, error) {
	at := c.at.run
	switch {
	case c.broken:
		return Report{}, &CorruptError{RunID: at.RunID, Seq: at.LastSeq - 1, Kind: c.before, Invariant: "D3",
			Reason: fmt.Sprintf("its hash is not the one that event %d carries: one of the two was changed, and nothing follows that tells which", at.LastSeq)}
	case at.LastSeq < c.promised():
		return Report{}, &CorruptError{RunID: c.runID, Seq: at.LastSeq + 1, Invariant: "D1",
			Reason: fmt.Sprintf("the run ends after event %d; the log keeps the head of event %d", at.LastSeq, c.kept.LastSeq)}
	case at.LastSeq == 0:
		return Report{}, &CorruptError{RunID: c.runID, Invariant: "D1", Reason: "no events"}
	case at.TerminalKind == 0 && !c.opts.AllowOpen:
		return Report{}, c.corruptLast("D4", "the last event is %v, not a terminal one", c.last)
	}
	return Report{Events: at.LastSeq, Sealed: c.sealed, Open: at.TerminalKind == 0, Terminal: at.TerminalKind,
		Head: at.Head, Root: c.tree.Root(), HeadKept: c.kept != nil}, nil
}

// corruptLast reports the last event that was added.
func (c *Checker) corruptLast(invariant, format string, args ...any) error {
	return &CorruptError{RunID: c.at.run.RunID, Seq: c.at.run.LastSeq, Kind: c.last,
		Invariant: invariant, Reason: fmt.Sprintf(format, args...)}
}

// corrupt reports e.
func corrupt(e event.Event, invariant, format string, args ...any) error {
	return &CorruptError{RunID: e.RunID, Seq: e.Seq, Kind: e.Kind,
		Invariant: invariant, Reason: fmt.Sprintf(format, args...)}
}
