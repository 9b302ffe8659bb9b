package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// CheckOptions selects what [Check] requires of a run. Its zero value is the
// profile of [Validate].
type CheckOptions struct {
	// Strict adds the rules S1 to S7. Everything that this project writes
	// keeps them; runs that other programs wrote may not.
	Strict bool
	// AllowOpen accepts a run without a terminal event: a run in progress, or one
	// that a crash cut short.
	AllowOpen bool
}

// Report is the result of a check that found no error.
type Report struct {
	Events    uint64
	Encrypted uint64     // events with encrypted payloads: all or none
	Open      bool       // without a terminal event
	Terminal  event.Kind // zero when Open
	Head      canon.Hash // of the last event
	Root      canon.Hash // Merkle root over the hashes of all events but the terminal one
	HeadKept  bool       // the last event was held against a head that the log keeps apart
	Unknown   string     // fields that this program does not know and ignores; of a newer one
}

// Validate checks the eight invariants of a finished run. Its error is a
// [*CorruptError].
func Validate(events []event.Event) error {
	_, err := Check(events, CheckOptions{})
	return err
}

// Check reports whether events are one valid run:
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
// RunResumed is a reset point for pending work: a turn and calls that were open when the
// earlier process died need no end. Finished work stays finished.
//
// Strict adds:
//
//	S1  every kind is one of the closed set
//	S2  every payload is canonical, and what its kind's struct encodes, with no field
//	    missing; further fields are ignored, see [Report].Unknown (spec/event.md, section 12)
//	S3  there is one RunStarted
//	S4  the attempts of a call count up from 1, none begins while another is
//	    open, and none is used twice
//	S5  effects and nested calls name a call that is open
//	S6  payloads and run ids keep the limits of this package
//	S7  the files that a run or a call is given keep the rules of [event.Workspace]; the call names
//	    the files that it left if and only if it was given some and succeeded
//
// Clocks may step backwards, so timestamps are not checked.
//
// In a run with encrypted payloads ([event.Encrypted]), Check covers the visible parts: D1 to
// D4 and D8 as above, over the stored events; D5 without the version; D6 and D7 by kinds
// and order alone, so a run that the key shows to be wrong may pass; S1, S3, S6; and of S2,
// that the encrypted payload has its exact form. The events of a run are all encrypted or
// all plain. Checking it through the log that holds the key checks everything.
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
// flat. If the log keeps the head of the run ([EventLog].Run), the whole summary is computed
// again and compared, so that a change in the last event is noticed as well.
func CheckRun(ctx context.Context, log EventLog, runID string, o CheckOptions) (Report, error) {
	return VisitRun(ctx, log, runID, o, func(event.Event) error { return nil })
}

// VisitRun is [CheckRun], and passes each event on to visit. What visit got is valid only if VisitRun
// returns no error, because a later event or the end of the run may show that an earlier one was
// changed. An error of visit ends the check.
func VisitRun(ctx context.Context, log EventLog, runID string, o CheckOptions, visit func(event.Event) error) (Report, error) {
	c := NewChecker(o)
	c.runID = runID
	switch indexed, err := log.Run(ctx, runID); {
	case err == nil && indexed.Head != (canon.Hash{}):
		c.indexed = &indexed
	case err != nil && !errors.Is(err, ErrRunNotFound):
		return Report{}, err
	}
	for e, err := range log.Events(ctx, runID, 0) {
		if err == nil {
			err = c.Add(e)
		}
		if err == nil {
			err = visit(e)
		}
		if err != nil && !(errors.Is(err, ErrRunNotFound) && c.promised() > 0) {
			return Report{}, err
		}
	}
	return c.Finish()
}

// Checker checks a run that is handed to it event by event. Its memory grows
// with the calls that are open, in strict mode with the calls of the run. Use
// [NewChecker].
type Checker struct {
	opts    CheckOptions
	indexed *RunSummary // the backend's own summary; nil if it has none
	runID   string

	at        Cursor // after the last added event
	last      event.Kind
	tree      canon.Tree
	broken    bool // the last event does not carry its predecessor's hash
	before    event.Kind
	pairs     pairs
	encrypted uint64 // events so far that are
	unknown   string
	hidden    hiddenPairs
}

// NewChecker returns a checker that has seen nothing.
func NewChecker(o CheckOptions) *Checker {
	c := &Checker{opts: o, pairs: pairs{open: make(map[attempt]struct{})}}
	if o.Strict {
		c.pairs.calls = make(map[string]callState)
	}
	return c
}

// Add checks the next event. After an error the checker is unusable.
func (c *Checker) Add(e event.Event) error {
	if c.broken {
		return c.blame(bytes.Equal(e.PrevHash, c.at.run.Head[:]))
	}
	at := &c.at.run
	switch {
	case at.LastSeq == 0 && e.RunID == "":
		return corrupt(e, "D2", "the event names no run")
	case at.LastSeq > 0 && e.RunID != at.RunID:
		return corrupt(e, "D2", "the event names run %q in the middle of run %q", e.RunID, at.RunID)
	case at.TerminalKind != 0:
		return c.corruptLast("D4", "the terminal event is not the last: event %d follows", e.Seq)
	case e.Seq != at.LastSeq+1:
		want := at.LastSeq + 1 // this is the number to report, and not the one that was found
		return corrupt(event.Event{RunID: e.RunID, Seq: want}, "D1", "event %d is missing; event %d (%v) comes in its place", want, e.Seq, e.Kind)
	case at.LastSeq == 0 && len(e.PrevHash) > 0:
		return corrupt(e, "D3", "the first event carries the hash of a predecessor")
	}
	c.broken = at.LastSeq > 0 && !bytes.Equal(e.PrevHash, at.Head[:])
	if !c.broken {
		if err := c.meaning(e); err != nil {
			return err
		}
	}
	return c.advance(e)
}

// meaning checks the payload: the first event's version, the pairs, the root
// and the rules of strict mode.
func (c *Checker) meaning(e event.Event) error {
	s, encrypted := event.AsEncrypted(e.Payload)
	first := c.at.run.LastSeq == 0
	switch { // an event of the other kind was added without the key, or its writer hides its content
	case !first && encrypted && c.encrypted == 0:
		return corrupt(e, "encrypted", "the payload is encrypted; those before it are not")
	case !first && !encrypted && c.encrypted > 0:
		return corrupt(e, "encrypted", "the payload is not encrypted; those before it are")
	case encrypted:
		return c.encryptedMeaning(e, s)
	}
	var start error
	if first {
		if start = checkStart(e); errors.Is(start, ErrSchemaTooNew) { // which may have other payloads
			return start
		}
	}
	var payload any // in strict mode
	if c.opts.Strict {
		var err error
		if payload, err = c.strictEvent(e, first); err != nil {
			return err
		}
	}
	if start != nil {
		return start
	}
	if err := c.pairs.add(e, payload); err != nil {
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

// advance moves behind e, and compares the run with the log's own summary if that ends with e. A broken
// link at the end of the run is decided here: by the head that the log keeps, or between the last event
// and the terminal event e by the Merkle root. If that fits, all before e is intact.
func (c *Checker) advance(e event.Event) error {
	switch {
	case c.broken && e.Kind.Terminal() && c.rootFits(e):
		return corrupt(e, "D3", "PrevHash is not the hash of event %d; the Merkle root shows that this event was changed", e.Seq-1)
	case c.broken && e.Kind.Terminal():
		return c.corruptLast("D3", "the event was changed: its hash is not the one that event %d carries", e.Seq)
	}
	hash := e.Hash()
	c.before, c.last = c.last, e.Kind
	c.at.advance(e, hash)
	if !e.Kind.Terminal() {
		c.tree.Add(hash)
	}
	if c.indexed == nil || c.indexed.LastSeq != e.Seq {
		return nil
	}
	got, indexed := c.at.run, *c.indexed
	switch {
	case c.broken:
		return c.blame(got.Head == indexed.Head)
	case got.Head != indexed.Head:
		return corrupt(e, "head", "the hash is %v; the log keeps %v for it", got.Head, indexed.Head)
	case got != indexed:
		return corrupt(e, "head", "the log's summary of the run does not fit its events: %s", firstMisfit(indexed, got))
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

// blame decides a broken link between the last two events. If the next event,
// or the head, fits the last event, then the last one is intact, and the one
// before it was changed.
func (c *Checker) blame(lastIntact bool) error {
	at := c.at.run
	if lastIntact {
		return c.corruptBefore("the event was changed: its hash is not the one that event %d carries", at.LastSeq)
	}
	return c.corruptLast("D3", "PrevHash is not the hash of event %d, and the event's own hash is not the one that was recorded: this event was changed", at.LastSeq-1)
}

// promised returns the number of events that the log claims for the run.
func (c *Checker) promised() uint64 {
	if c.indexed == nil {
		return 0
	}
	return c.indexed.LastSeq
}

// Finish checks what only the end of a run shows.
func (c *Checker) Finish() (Report, error) {
	at := c.at.run
	switch {
	case c.broken:
		return Report{}, c.corruptBefore("its hash is not the one that event %d carries: one of the two was changed, and nothing follows that tells which", at.LastSeq)
	case at.LastSeq < c.promised():
		return Report{}, corrupt(event.Event{RunID: c.runID, Seq: at.LastSeq + 1}, "D1", "the run ends after event %d; the log keeps the head of event %d", at.LastSeq, c.indexed.LastSeq)
	case at.LastSeq == 0:
		return Report{}, corrupt(event.Event{RunID: c.runID}, "D1", "no events")
	case at.TerminalKind == 0 && !c.opts.AllowOpen:
		return Report{}, c.corruptLast("D4", "the last event is %v, not a terminal one", c.last)
	}
	return Report{Events: at.LastSeq, Encrypted: c.encrypted, Open: at.TerminalKind == 0, Terminal: at.TerminalKind,
		Head: at.Head, Root: c.tree.Root(), HeadKept: c.indexed != nil, Unknown: c.unknown}, nil
}

// corruptLast reports the last event that was added.
func (c *Checker) corruptLast(invariant, format string, args ...any) error {
	return corrupt(event.Event{RunID: c.at.run.RunID, Seq: c.at.run.LastSeq, Kind: c.last}, invariant, format, args...)
}

// corruptBefore reports the event before the last one.
func (c *Checker) corruptBefore(format string, args ...any) error {
	return corrupt(event.Event{RunID: c.at.run.RunID, Seq: c.at.run.LastSeq - 1, Kind: c.before}, "D3", format, args...)
}

// corrupt reports e.
func corrupt(e event.Event, invariant, format string, args ...any) error {
	return &CorruptError{RunID: e.RunID, Seq: e.Seq, Kind: e.Kind,
		Invariant: invariant, Reason: fmt.Sprintf(format, args...)}
}

// decodePart decodes the fields of a payload that *part names.
func decodePart(e event.Event, invariant string, part any) error {
	if err := canon.Unmarshal(e.Payload, part); err != nil {
		return corrupt(e, invariant, "the payload does not decode: %v", err)
	}
	return nil
}

// encryptedMeaning checks the part of meaning that is visible in an encrypted event.
func (c *Checker) encryptedMeaning(e event.Event, s event.Encrypted) error {
	first := c.at.run.LastSeq == 0
	if c.opts.Strict {
		if err := strictEnvelope(e, first); err != nil {
			return err
		}
		if len(s.MerkleRoot) > 0 && !e.Kind.Terminal() {
			return corrupt(e, "S2", "an event that is not terminal carries a Merkle root")
		}
	}
	if first && e.Kind != event.KindRunStarted {
		return corrupt(e, "D5", "the first event is %v, not RunStarted", e.Kind)
	}
	if err := c.hidden.add(e); err != nil {
		return err
	}
	c.encrypted++
	return c.checkRoot(e)
}

// strictEvent checks the rules of strict mode that concern one event alone, and returns its
// payload.
func (c *Checker) strictEvent(e event.Event, first bool) (payload any, err error) {
	if err := strictEnvelope(e, first); err != nil {
		return nil, err
	}
	if err := canon.Valid(e.Payload); err != nil {
		return nil, corrupt(e, "S2", "the payload is not canonical: %v", err)
	}
	payload, want, err := shapes[e.Kind](e)
	if err != nil {
		return nil, corrupt(e, "S2", "the payload does not decode: %v", err)
	}
	return payload, c.exactShape(e, want)
}

// strictEnvelope checks the rules that do not look into the payload.
func strictEnvelope(e event.Event, first bool) error {
	switch {
	case !e.Kind.Valid():
		return corrupt(e, "S1", "kind %d is not in the closed set", uint8(e.Kind))
	case e.Kind == event.KindRunStarted && !first:
		return corrupt(e, "S3", "a second RunStarted")
	case len(e.RunID) > MaxRunIDBytes:
		return corrupt(e, "S6", "the run id has %d bytes; at most %d are allowed", len(e.RunID), MaxRunIDBytes)
	case len(e.Payload) > MaxPayloadBytes:
		return corrupt(e, "S6", "the payload has %d bytes; at most %d are allowed", len(e.Payload), MaxPayloadBytes)
	}
	return nil
}

// exactShape compares a payload with want, its struct encoded again. A field that the struct lacks,
// or that the payload lacks, makes the bytes differ.
func (c *Checker) exactShape(e event.Event, want canon.Raw) error {
	if bytes.Equal(want, e.Payload) {
		return nil
	}
	if keys, ok := canon.Further(want, e.Payload); ok {
		const most = 200 // bytes
		for _, key := range keys {
			if name := e.Kind.String() + "." + key; len(c.unknown) < most && !strings.Contains(c.unknown, name) {
				c.unknown = strings.TrimPrefix(c.unknown+", "+name, ", ")
			}
		}
		return nil
	}
	field, w, h, _ := event.Diff(want, e.Payload)
	return corrupt(e, "S2", "the payload has not the shape of its kind: %s is %s where %s is expected", field, h, w)
}

// shapes has the struct of every kind.
var shapes = map[event.Kind]func(event.Event) (payload any, again canon.Raw, err error){
	event.KindRunStarted:                reencode[event.RunStarted],
	event.KindUserMessageAppended:       reencode[event.UserMessageAppended],
	event.KindTurnStarted:               reencode[event.TurnStarted],
	event.KindReasoningEmitted:          reencode[event.ReasoningEmitted],
	event.KindAssistantMessageCompleted: reencode[event.AssistantMessageCompleted],
	event.KindToolCallScheduled:         reencode[event.ToolCallScheduled],
	event.KindToolCallCompleted:         reencode[event.ToolCallCompleted],
	event.KindToolCallFailed:            reencode[event.ToolCallFailed],
	event.KindSideEffectRecorded:        reencode[event.SideEffectRecorded],
	event.KindBudgetExceeded:            reencode[event.BudgetExceeded],
	event.KindContextTruncated:          reencode[event.ContextTruncated],
	event.KindRunCompleted:              reencode[event.RunCompleted],
	event.KindRunFailed:                 reencode[event.RunFailed],
	event.KindRunCancelled:              reencode[event.RunCancelled],
	event.KindRunResumed:                reencode[event.RunResumed],
	event.KindTurnFailed:                reencode[event.TurnFailed],
}

func reencode[T event.Payload](e event.Event) (any, canon.Raw, error) {
	p, err := event.Decode[T](e)
	if err != nil {
		return nil, nil, err
	}
	again, err := canon.Encode(p) // what differs in form differs from the payload, which is canonical
	return p, again, err
}

// CorruptError describes where a run breaks a rule, and why.
type CorruptError struct {
	RunID     string
	Seq       uint64     // of the event that is wrong or missing; zero for a run without events
	Kind      event.Kind // as stored; zero when the event is missing
	Invariant string     // D1 to D8, S1 to S7, "encrypted", "head" or "storage"; see [Check], [CheckRun]; empty for anything else
	Reason    string

	// Newer means that a later version of this format begins here, which this program
	// does not know. The run need not be wrong, and the error is [ErrSchemaTooNew]
	// instead of [ErrLogCorrupt].
	Newer bool
}

// Error names the run, the event, the invariant (if any) and the reason.
func (e *CorruptError) Error() string {
	where := fmt.Sprintf("event %d", e.Seq)
	if e.Kind != 0 {
		where += fmt.Sprintf(" (%v)", e.Kind)
	}
	if e.Invariant != "" {
		where += ": " + e.Invariant
	}
	return fmt.Sprintf("%v: run %q, %s: %s", e.Unwrap(), e.RunID, where, e.Reason)
}

// Corruption returns the text of a [CorruptError] without its common prefix.
func Corruption(err error) string {
	if corrupt := (*CorruptError)(nil); errors.As(err, &corrupt) {
		err = corrupt
	}
	text := strings.TrimPrefix(err.Error(), ErrLogCorrupt.Error()+": ")
	return strings.TrimPrefix(text, ErrSchemaTooNew.Error()+": ")
}

// IsVerdict reports whether an error is about the content of a log: a byte was changed, an
// event, a run or a module is missing, or a newer program wrote it. Any other error means
// only that the log could not be read, and does not judge the run.
func IsVerdict(err error) bool {
	return errors.Is(err, ErrLogCorrupt) || errors.Is(err, ErrSchemaTooNew) || errors.Is(err, ErrRunNotFound) || errors.Is(err, ErrModuleNotFound)
}

// Unwrap returns [ErrLogCorrupt], or [ErrSchemaTooNew].
func (e *CorruptError) Unwrap() error {
	if e.Newer {
		return ErrSchemaTooNew
	}
	return ErrLogCorrupt
}
