package dblog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/zstd"
)

// ErrNoUses means that a database cannot be written, because what uses its modules is not known.
var ErrNoUses error = &eventlog.MissingTableError{Table: "module_use", Earlier: true}

// setName is the pattern for names of table sets.
var setName = lazy.Regexp(`^[a-z_]+$`)

// Missing reports whether the database lacks steps of a set of tables.
func Missing(ctx context.Context, db eventlog.Transactor, name string, set eventlog.TableSet) (bool, error) {
	if !setName().MatchString(set.Name) {
		return false, fmt.Errorf("%s: a set of tables is called %q: want letters a to z and underscores", name, set.Name)
	}
	taken, err := db.TableSteps(ctx, set)
	return taken < len(set.Steps), err
}

// Expanded is what follows the name of a set in table_set where a second row counts all of its steps.
// The row of the name alone then counts those that a program must know.
const Expanded = "_expanded"

// StepsTaken returns how many steps of the set the database has.
func StepsTaken(q eventlog.Querier, set eventlog.TableSet) (int, error) {
	n, err := One[int64](q, "SELECT steps FROM table_set WHERE name = $1", set.Name)
	if err != nil {
		return 0, err
	}
	if n > int64(len(set.Steps)) {
		return int(n), fmt.Errorf("%w: the tables %q are at step %d, this program knows %d", eventlog.ErrSchemaTooNew, set.Name, n, len(set.Steps))
	}
	all, err := One[int64](q, "SELECT steps FROM table_set WHERE name = $1", set.Name+Expanded)
	return min(int(max(n, all)), len(set.Steps)), err
}

// TakeSteps takes the steps that are missing. do runs one.
func TakeSteps(tx Execer, set eventlog.TableSet, do func(statements string) error) error {
	taken, err := StepsTaken(tx, set)
	if err != nil {
		return err
	}
	for i, step := range set.Steps[taken:] {
		if err := do(step); err != nil {
			return fmt.Errorf("tables %q, step %d: %w", set.Name, taken+i+1, err)
		}
	}
	const record = "INSERT INTO table_set (name, steps) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET steps = excluded.steps"
	_, err = tx.Exec(record, set.Name, int64(len(set.Steps)-set.Added))
	if err == nil && set.Added > 0 {
		_, err = tx.Exec(record, set.Name+Expanded, int64(len(set.Steps)))
	}
	return err
}

// PieceBytes is the size of a module's piece in a row of module_piece, before it is packed. It is
// part of the layout: existing pieces are not written again.
const PieceBytes = 256 << 10

// Pack returns the form in which a row has a module or a piece of one: a zstd frame if that is
// smaller, or else the bytes themselves, as in all rows of earlier commits. Pieces are packed one
// by one: a piece of another version of the compressor still unpacks to the same bytes.
func Pack(b []byte) []byte {
	switch frame := zstd.Compress(b); {
	case len(frame) < len(b) || zstd.Is(b):
		return frame
	case b == nil:
		return []byte{} // nil would be NULL
	}
	return b
}

// unpack returns what was packed, of which there are at most so many bytes. Bytes that only look
// like a frame are returned as they are, and the digest of the module decides.
func unpack(b []byte, most int) []byte {
	if zstd.Is(b) {
		if unpacked, err := zstd.Decompress(b, most); err == nil {
			return unpacked
		}
	}
	return b
}

// Statements runs the statements of a transaction, and keeps the rules for them: one at a
// time, with arguments that every database takes, and none after one has failed. Its
// fields are set once.
type Statements struct {
	Name     string
	On       Execer             // the connection that is in the transaction
	Conflict func(error) bool   // whether an error means that a row exists
	Arg      func(arg any) bool // whether a further type of argument is accepted; may be nil
	Explain  func(error) error  // adds details to an error; may be nil

	Failed  error // a statement has failed, and the transaction with it
	reading bool  // a query calls its function at this time
}

// Ready checks that a statement can be run.
func (s *Statements) Ready(sql string, args ...any) error {
	if s.Failed != nil {
		return s.Failed
	}
	if s.reading {
		return s.Fail(sql, errors.New("the rows of another statement are being read"))
	}
	for i, arg := range args {
		switch arg.(type) {
		case nil, bool, int64, float64, string, []byte:
		default:
			if s.Arg == nil || !s.Arg(arg) {
				return s.Fail(sql, fmt.Errorf("argument $%d is a %T: want nil, bool, int64, float64, string or []byte, or many of the last four on a server", i+1, arg))
			}
		}
	}
	return nil
}

// Fail keeps the error, so that later statements in the transaction fail with it.
func (s *Statements) Fail(sql string, err error) error {
	if s.Conflict(err) {
		err = fmt.Errorf("%w: %w", eventlog.ErrConflict, err)
	}
	if s.Explain != nil {
		err = s.Explain(err)
	}
	s.Failed = fmt.Errorf("%s: %.80s: %w", s.Name, sql, err)
	return s.Failed
}

// Query implements [eventlog.Querier]. An error of row is returned as it is, and fails
// nothing.
func (s *Statements) Query(sql string, args []any, row func(eventlog.Row) error) error {
	if err := s.Ready(sql, args...); err != nil {
		return err
	}
	s.reading = true
	defer func() { s.reading = false }()
	var refused error
	err := s.On.Query(sql, args, func(r eventlog.Row) error {
		refused = row(r)
		return refused
	})
	if err != nil && refused == nil {
		err = s.Fail(sql, err)
	}
	return err
}

// Exec implements Exec of [eventlog.Tx].
func (s *Statements) Exec(sql string, args ...any) (changed int64, err error) {
	if err := s.Ready(sql, args...); err != nil {
		return 0, err
	}
	if changed, err = s.On.Exec(sql, args...); err != nil {
		return 0, s.Fail(sql, err)
	}
	return changed, nil
}

// ScanValues is Scan of [eventlog.Row] for values as a driver returns them: numbers, texts
// and bytes. A number is true unless it is zero, and a point in time in nanoseconds since
// 1970, or never for zero. The log's package is named in errors.
func ScanValues[V any](name string, values []V, to []any) error {
	if len(to) != len(values) {
		return fmt.Errorf("%s: the row has %d columns, not %d", name, len(values), len(to))
	}
	for i, v := range values {
		if !scan(v, to[i]) {
			return fmt.Errorf("%s: column %d holds a %T, which does not go into a %T", name, i+1, v, to[i])
		}
	}
	return nil
}

func scan(v, to any) bool {
	v = wide(v)
	n, isInt := v.(int64)
	switch to := to.(type) {
	case *bool:
		if isInt {
			v = n != 0
		}
		return scanAs(v, to)
	case *int64:
		return scanAs(v, to)
	case *int:
		*to = int(n)
		return isInt || v == nil
	case *uint64:
		*to = uint64(n)
		return isInt || v == nil
	case *time.Time:
		if *to = (time.Time{}); n != 0 {
			*to = time.Unix(0, n).UTC()
		}
		return isInt || v == nil
	case *float64:
		if isInt {
			v = float64(n)
		}
		return scanAs(v, to)
	case *string:
		return scanAs(v, to)
	case *canon.Hash:
		digest, _ := v.([]byte)
		*to = canon.Hash{}
		copy(to[:], digest)
		return v == nil || len(digest) == len(to)
	case *[]byte:
		ok := scanAs(v, to)
		if v != nil && *to == nil {
			*to = []byte{} // it exists, and is empty
		}
		return ok
	}
	return false
}

func scanAs[T any](v any, to *T) (ok bool) {
	*to, ok = v.(T)
	return ok || v == nil
}

// wide returns an integer as int64 and a float as float64: a server has several types of each.
func wide(v any) any {
	switch n := v.(type) {
	case int16:
		return int64(n)
	case int32:
		return int64(n)
	case float32:
		return float64(n)
	}
	return v
}

// EventOf returns the event of a run in a row of the columns seq, prev_hash, ts, kind and payload, which
// may have values of any type: SQLite checks no types. In place of a payload of more than
// [eventlog.MaxPayloadBytes] there is its length, or nothing.
func EventOf[V any](runID string, row []V) (event.Event, error) {
	var columns [5]any
	for i := range columns {
		columns[i] = wide(row[i])
	}
	seq, okSeq := columns[0].(int64)
	prev, okPrev := columns[1].([]byte)
	ts, okTS := columns[2].(int64)
	kind, okKind := columns[3].(int64)
	payload, okPayload := columns[4].([]byte)
	e := event.Event{RunID: runID, Seq: uint64(seq), PrevHash: prev, Timestamp: ts, Kind: event.Kind(kind), Payload: payload}
	switch {
	case !okSeq || seq < 1:
		return e, Storage(e, "column seq holds %s", shown(columns[0]))
	case !okPrev && columns[1] != nil:
		return e, Storage(e, "column prev_hash holds a %T", columns[1])
	case !okTS:
		return e, Storage(e, "column ts holds a %T", columns[2])
	case !okKind || kind < 0 || kind > 255:
		return e, Storage(e, "column kind holds %s", shown(columns[3]))
	case columns[4] == nil:
		return e, Storage(e, "column payload holds more than %d bytes", eventlog.MaxPayloadBytes)
	case !okPayload:
		return e, Storage(e, "column payload holds a %T, or more than %d bytes: %s", columns[4], eventlog.MaxPayloadBytes, shown(columns[4]))
	}
	return e, nil
}

// Storage reports a row that is not an event.
func Storage(e event.Event, format string, args ...any) error {
	return &eventlog.CorruptError{RunID: e.RunID, Seq: e.Seq, Invariant: "storage", Reason: fmt.Sprintf(format, args...)}
}

// shown formats a value for a message; the value may be as large as the file.
func shown(v any) string {
	if n, ok := v.(int64); ok {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("a %T", v)
}
