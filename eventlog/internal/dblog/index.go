package dblog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/eventlog/internal/tail"
	"github.com/starling-host/starling/eventlog/seal"
)

// Columns are the columns of a row of the table run behind [Dialect].Key.
const Columns = "started, last_seq, head, terminal, turns, tools, input_tokens, output_tokens, cost_usd, duration_ms"

// Values returns the values of [Columns] for a run.
func Values(s eventlog.RunSummary) []any {
	return []any{s.StartedAt.UnixNano(), int64(s.LastSeq), s.Head[:], int64(s.TerminalKind), int64(s.TurnCount),
		int64(s.ToolCallCount), s.InputTokens, s.OutputTokens, s.CostUSD, s.DurationMs}
}

// Dialect is the SQL that a database spells its own way.
type Dialect struct {
	Name string // of the log's package, for errors

	Key       string // columns of the table run: number of the row, or 0; epoch, or 0; run id, or NULL
	Order     string // column that orders runs which began at the same time
	Begun     string // column that orders runs by their start; may be empty
	HasEvents string // condition: the run has events; empty if every row's run has some
	LastSeq   string // the greatest number of the events that are selected
	Partition string // condition that names the partition of the events of run $1, after AND; may be empty
	NewKey    string // columns of a new row that has no writer, before [Columns]
	NewValue  string // their values, of the run $1

	// Segment is the part of a run id up to its first slash, as the index run_by_namespace
	// has it. It ends with SegmentEnd.
	Segment, SegmentEnd string

	ULID     string // the last 26 characters of a run id
	Position string // function that returns where in a text another one is

	Elements string                 // a query that yields the texts in the argument %s
	List     func(ids []string) any // makes that argument
	Holds    func(text string) bool // whether the database can hold a text; nil if it can hold all
	Pieces   bool                   // large modules are in the table module_piece
}

// SQL are the statements in a dialect. Use [Compile].
type SQL struct {
	Dialect
	find, list, set string

	// Recount sets how many bytes and events of a row's run are counted, from the events. A WHERE may follow.
	Recount string
}

// Compile returns the statements in a dialect.
func Compile(d Dialect) *SQL {
	return &SQL{
		Dialect: d,
		Recount: "UPDATE run SET (bytes, counted) = (SELECT coalesce(sum(length(payload)), 0), count(*)" + d.ofRow() + ")",
		list:    "SELECT " + d.Key + ", " + Columns + " FROM run",
		find: "SELECT " + d.Key + ", " + Columns + ", (SELECT " + d.LastSeq +
			" FROM eventlog_events WHERE run_id = $1" + d.Partition + ") FROM (SELECT 1) AS one LEFT JOIN run ON run.run_id = $1",
		set: "INSERT INTO run (" + d.NewKey + ", " + Columns + ") VALUES (" + d.NewValue + ", $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)" +
			" ON CONFLICT (run_id) DO UPDATE SET (" + Columns + ") = ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11) WHERE run.last_seq = $12",
	}
}

// ofRow selects the events of a row of the table run.
func (d *Dialect) ofRow() string {
	return " FROM eventlog_events WHERE eventlog_events.run_id = run.run_id" + strings.ReplaceAll(d.Partition, "$1", "run.run_id")
}

// failed adds what the log was about to do. It names the log once, also if err does.
func (d *Dialect) failed(what string, err error) error {
	return &failure{d.Name + ": " + what + ": " + strings.TrimPrefix(err.Error(), d.Name+": "), err}
}

type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

func (d *Dialect) holds(text string) bool { return d.Holds == nil || d.Holds(text) }

// Runs are the [pending.Runs] of a log, for any type of writer state.
type Runs interface {
	Append(ctx context.Context, runID string, epoch uint64, ev event.Event) error
	Sync(ctx context.Context, runID string, epoch uint64) error
	Settle(ctx context.Context, runID string) error
	Events(ctx context.Context, runID string, after uint64, page tail.Page) iter.Seq2[event.Event, error]
	Writable() error
	AtWork() []string
	Import(ctx context.Context, ev event.Event) error
}

// Use is the purpose of a call of [Backend].Behind.
type Use int

// The uses of an answer.
const (
	ForAll Use = iota // a listing of all runs
	ForPage
	ForPruning
)

// Backend is the part that each log implements itself. All fields must be set.
type Backend struct {
	*SQL
	Runs Runs

	// Indexed reports whether there are the tables run and module, and Counts whether run counts bytes.
	Indexed, Counts func() bool
	// Read runs statements on committed data. It may call the function again.
	Read func(ctx context.Context, fn func(eventlog.Querier) error) error
	Page tail.Page
	// Behind returns the runs whose rows lack events and could not be brought up to date by a log
	// opened for writing.
	Behind func(ctx context.Context, use Use) ([]string, error)
	// StoreModule stores a module in pieces, see Pack; nil without Pieces.
	StoreModule func(ctx context.Context, digest canon.Hash, wasm []byte) error
	// MayRemoveModules reports whether the role of the log may remove modules.
	MayRemoveModules func(ctx context.Context) (bool, error)
	// Log is the log itself.
	Log eventlog.Transactor
	// BringUp writes the rows of runs with [SQL.Reindex], if the log writes.
	BringUp func(ctx context.Context, runIDs ...string) error

	found sync.Map // the digests of modules that the log had when it was asked last
}

// Scanner reads rows of [Dialect].Key, [Columns] and possibly more. It is made once for all
// rows of a statement.
type Scanner struct {
	at                                           pending.Position
	s                                            eventlog.RunSummary
	epoch, started, last, terminal, turns, tools int64
	head                                         []byte
	to                                           []any
}

// NewScanner returns a scanner that reads the columns after [Columns] into more.
func NewScanner(more ...any) *Scanner {
	x := new(Scanner)
	x.to = append([]any{&x.at.Row, &x.epoch, &x.s.RunID, &x.started, &x.last, &x.head, &x.terminal, &x.turns, &x.tools,
		&x.s.InputTokens, &x.s.OutputTokens, &x.s.CostUSD, &x.s.DurationMs}, more...)
	return x
}

// Scan reads a row. For a row without values, it returns the zero Position.
func (x *Scanner) Scan(row eventlog.Row) (pending.Position, eventlog.RunSummary, error) {
	x.at, x.s = pending.Position{}, eventlog.RunSummary{}
	if err := row.Scan(x.to...); err != nil {
		return pending.Position{}, eventlog.RunSummary{}, x.malformed()
	}
	at, s := x.at, x.s
	if x.head == nil && s.RunID == "" {
		return at, s, nil
	}
	if s.RunID == "" || len(x.head) != len(canon.Hash{}) || x.epoch < 0 || x.last < 0 || x.terminal < 0 || x.terminal > 255 ||
		int64(int(x.turns)) != x.turns || int64(int(x.tools)) != x.tools {
		return pending.Position{}, eventlog.RunSummary{}, x.malformed()
	}
	s.StartedAt, s.LastSeq, s.Head, s.TerminalKind = time.Unix(0, x.started).UTC(), uint64(x.last), canon.Hash(x.head), event.Kind(x.terminal)
	s.TurnCount, s.ToolCallCount = int(x.turns), int(x.tools)
	at.Epoch = uint64(x.epoch)
	if s.LastSeq > 0 {
		at.Cursor = eventlog.NewCursor(s)
	}
	return at, s, nil
}

func (x *Scanner) malformed() error {
	return fmt.Errorf("%w: run %q: its row in the table run is malformed", eventlog.ErrLogCorrupt, x.s.RunID)
}

// Find returns the position of a run by its row, and the number of its last event, which is
// greater if another program has appended to the run.
func (x *SQL) Find(q eventlog.Querier, runID string) (at pending.Position, last uint64, err error) {
	err = q.Query(x.find, []any{runID}, func(row eventlog.Row) (err error) {
		var seq int64
		at, _, err = NewScanner(&seq).Scan(row)
		last = uint64(max(seq, 0))
		return err
	})
	return at, last, err
}

// Position returns the position of a run by its events. kept reports whether its row agrees;
// otherwise the summary was computed. If the run does not exist, the position has no id.
func (x *Backend) Position(ctx context.Context, runID string) (at pending.Position, kept bool, err error) {
	if x.Indexed() {
		var last uint64
		err = x.Read(ctx, func(q eventlog.Querier) (err error) {
			at, last, err = x.Find(q, runID)
			return err
		})
		if err != nil || last <= at.Run().LastSeq {
			return at, true, err
		}
	}
	row := at.Run()
	s, err := tail.Summary(runID, tail.Events(ctx, runID, 0, x.Page), row)
	if err != nil || s == row {
		return at, true, err
	}
	at.Cursor = eventlog.NewCursor(s)
	return at, false, nil
}

// Look is Position, for a row that a log which writes brings up to date.
func (x *Backend) Look(ctx context.Context, runID string) (at pending.Position, kept bool, err error) {
	at, kept, err = x.Position(ctx, runID)
	if err == nil && !kept && x.BringUp(ctx, runID) == nil {
		return x.Position(ctx, runID)
	}
	return at, kept, err
}

// Execer runs statements that write.
type Execer interface {
	eventlog.Querier
	Exec(sql string, args ...any) (changed int64, err error)
}

// Reindex writes the rows of runs from their events if a run has more events than its row, and counts
// the recorded bytes of the rows again.
func (x *SQL) Reindex(ctx context.Context, db Execer, page tail.Page, runIDs ...string) error {
	for _, id := range runIDs {
		if err := x.reindex(ctx, db, page, id); err != nil {
			return x.failed(fmt.Sprintf("bring the row of run %q up to date", id), err)
		}
	}
	return nil
}

func (x *SQL) reindex(ctx context.Context, db Execer, page tail.Page, runID string) error {
	row, last, err := x.Find(db, runID)
	stored := row.Run()
	if errors.Is(err, eventlog.ErrLogCorrupt) {
		return nil // it stays unchanged
	}
	if err == nil && last > stored.LastSeq {
		var s eventlog.RunSummary
		s, err = tail.Summary(runID, tail.Events(ctx, runID, 0, page), stored)
		if errors.Is(err, eventlog.ErrRunNotFound) || err == nil && s.LastSeq <= stored.LastSeq {
			return nil
		}
		if err == nil {
			_, err = db.Exec(x.set, append(append([]any{runID}, Values(s)...), int64(stored.LastSeq))...)
		}
	}
	if err == nil {
		_, err = db.Exec(x.Recount+" WHERE run_id = $1", runID)
	}
	return err
}

// CatchUp migrates a database that has the log's layout: it adds to the index the events
// of these runs that another program has appended, or that were restored without it, and counts
// recorded bytes again where they are not those of the events.
func (x *Backend) CatchUp(ctx context.Context, report *eventlog.MigrationReport, behind []string) (err error) {
	if report.Miscounted, err = x.miscounted(ctx, ""); err != nil {
		return err
	}
	if report.Runs = int64(len(behind)); report.Runs > 0 {
		report.Steps = append(report.Steps, eventlog.StepCatchUp)
	}
	if len(report.Miscounted) > 0 {
		report.Steps = append(report.Steps, eventlog.StepCount)
	}
	if len(report.Steps) == 0 || report.DryRun {
		return nil
	}
	return x.BringUp(ctx, slices.Concat(behind, report.Miscounted)...)
}

// miscounted is Miscounted of [eventlog.Database]. Its statement sees a row and the events that the row
// covers at one time, also of a run in progress. A run that lacks some of them is left to a check.
func (x *Backend) miscounted(ctx context.Context, runID string) ([]string, error) {
	if !x.Counts() || !x.holds(runID) {
		return nil, nil
	}
	c := x.Select("counted = last_seq")
	if runID != "" {
		c.add("run_id = " + c.arg(runID))
	}
	c.add("bytes <> (SELECT CASE WHEN count(*) = run.last_seq THEN coalesce(sum(length(payload)), 0) ELSE run.bytes END" + x.ofRow() + " AND seq <= run.last_seq)")
	return x.IDs(ctx, "SELECT run_id FROM run"+c.Where()+" ORDER BY run_id", c.Args...)
}

// IDs returns the ids of runs that a statement on committed data yields.
func (x *Backend) IDs(ctx context.Context, sql string, args ...any) ([]string, error) {
	return Get(ctx, x.Read, func(q eventlog.Querier) ([]string, error) { return IDs(q, sql, args...) })
}

// Get returns what get finds in a source that read lends to it.
func Get[S, T any](ctx context.Context, read func(context.Context, func(S) error) error, get func(S) (T, error)) (found T, err error) {
	err = read(ctx, func(source S) (err error) {
		found, err = get(source)
		return err
	})
	return found, err
}

// IDs returns the ids of runs that a statement yields.
func IDs(q eventlog.Querier, sql string, args ...any) ([]string, error) {
	return eventlog.QueryAll(q, sql, args, func(r eventlog.Row) (id string, err error) {
		err = r.Scan(&id)
		return id, err
	})
}

// Lagging returns the runs that look finds behind their events, if it still does so after a log that
// writes has brought up their rows. A stopped log still shows durable events.
func (x *Backend) Lagging(ctx context.Context, look func() ([]string, error)) ([]string, error) {
	ids, err := look()
	if err == nil && len(ids) > 0 && x.BringUp(ctx, ids...) == nil {
		ids, err = look()
	}
	return ids, err
}

// all returns all runs. The runs in behind, and runs with malformed rows, are summarised by
// their events. A row without a run's id is an error returned beside the runs.
func (x *Backend) all(ctx context.Context, behind []string) (runs []eventlog.RunSummary, err error) {
	var malformed []string
	var unnamed error
	if x.Indexed() {
		err = x.Read(ctx, func(q eventlog.Querier) (err error) {
			runs, malformed, unnamed, err = summaries(q, Statement{SQL: x.list + x.Select(x.HasEvents).Where() + x.newestFirst(false)})
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	runs, err = tail.Merge(runs, slices.Concat(behind, malformed), func(id string) (s eventlog.RunSummary, kept bool, err error) {
		at, kept, err := x.Position(ctx, id)
		s = at.Run()
		if errors.Is(err, eventlog.ErrLogCorrupt) {
			kept = false
			s, err = tail.Summary(id, tail.Events(ctx, id, 0, x.Page), eventlog.RunSummary{})
		}
		if err == nil && s.RunID == "" {
			err = eventlog.ErrRunNotFound
		}
		return s, kept, err
	})
	return runs, cmp.Or(err, unnamed)
}

func (x *SQL) newestFirst(begun bool) string {
	if begun && x.Begun != "" {
		return " ORDER BY " + x.Begun + " DESC"
	}
	return " ORDER BY started DESC, " + x.Order + " DESC"
}

// summaries returns the rows that a statement yields, and the ids in malformed
// ones. The error unnamed reports a row without an id.
func summaries(q eventlog.Querier, list Statement) (runs []eventlog.RunSummary, malformed []string, unnamed, err error) {
	rows := NewScanner()
	err = q.Query(list.SQL, list.Args, func(row eventlog.Row) error {
		_, s, err := rows.Scan(row)
		switch {
		case err == nil:
			runs = append(runs, s)
		case rows.s.RunID != "":
			malformed = append(malformed, rows.s.RunID)
		default:
			unnamed = fmt.Errorf("%w: row %d of the table run has no run id", eventlog.ErrLogCorrupt, rows.at.Row)
		}
		return nil
	})
	return runs, malformed, unnamed, err
}

// One returns the single value that a statement yields, or zero without a result.
func One[T any](q eventlog.Querier, sql string, args ...any) (value T, err error) {
	_, err = eventlog.QueryOne(q, sql, args, &value)
	return value, err
}

// Conditions select rows of the table run. The texts are few, so each stays prepared.
type Conditions struct {
	x    *SQL
	all  []string
	Args []any
}

// Select begins a statement with a condition, which may be empty.
func (x *SQL) Select(cond string) *Conditions {
	c := &Conditions{x: x}
	if cond != "" {
		c.add(cond)
	}
	return c
}

// arg adds an argument and returns its placeholder.
func (c *Conditions) arg(v any) string {
	c.Args = append(c.Args, v)
	return fmt.Sprintf("$%d", len(c.Args))
}

func (c *Conditions) add(cond string) { c.all = append(c.all, cond) }

// Where returns the conditions as a part of a statement.
func (c *Conditions) Where() string {
	if len(c.all) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.all, " AND ")
}

// Namespace selects the runs of a namespace: "0" is the character after the slash.
func (c *Conditions) Namespace(ns string) *Conditions {
	if ns != "" {
		c.add("run_id >= " + c.arg(ns+"/"))
		c.add("run_id < " + c.arg(ns+"0"))
	}
	return c
}

// inOrder adds no condition, but makes the database use the index run_by_namespace, which
// has the order of listings. Counting is faster by ids alone.
func (c *Conditions) inOrder(ns string) {
	if ns != "" {
		first, _, _ := strings.Cut(ns, "/")
		c.add(c.x.Segment + " = " + c.arg(first+c.x.SegmentEnd))
	}
}

func (c *Conditions) status(status string) {
	if kind, ok := eventlog.StatusKind(status); ok {
		c.add("terminal = " + c.arg(int64(kind)))
	}
}

// among selects the runs in a list, or the runs not in it.
func (c *Conditions) among(not string, ids []string) {
	c.add("run_id " + not + "IN (" + fmt.Sprintf(c.x.Elements, c.arg(c.x.List(ids))) + ")")
}

// matching selects the runs on all pages.
func (c *Conditions) matching(o eventlog.RunPageOptions) *Conditions {
	c.Namespace(o.Namespace)
	c.status(o.Status)
	if o.Query != "" {
		at := c.arg(int64(o.QueryStart()))
		c.add(c.x.Position + "(lower(substr(run_id, " + at + ")), " + c.arg(eventlog.LowerASCII(o.Query)) + ") > 0")
	}
	if !o.StartedAfter.IsZero() {
		c.add("started > " + c.arg(eventlog.Nanos(o.StartedAfter)))
	}
	if o.RequireToolCalls {
		c.add("tools > 0")
	}
	return c
}

// Statement is a statement with its arguments.
type Statement struct {
	SQL  string
	Args []any
}

// PageOf returns the statements that count the runs on all pages and list the runs of one.
func (x *SQL) PageOf(o eventlog.RunPageOptions) (count, list Statement) {
	c := x.Select(x.HasEvents).matching(o)
	where, args := c.Where(), slices.Clone(c.Args)
	if o.Namespace != "" { // otherwise a server may read the index of all of its runs, however few are counted
		where += " ORDER BY run_id"
	}
	count = Statement{"SELECT count(*) FROM (SELECT 1 FROM run" + where + fmt.Sprintf(" LIMIT $%d) AS counted", len(args)+1), append(args, int64(o.MaxTotal()))}
	c.inOrder(o.Namespace)
	if !o.From.IsZero() {
		c.add("started <= " + c.arg(eventlog.Nanos(o.From)))
	}
	list.SQL = x.list + c.Where() + x.newestFirst(o.Begun && o.From.IsZero()) + " LIMIT " + c.arg(int64(o.Limit)) + " OFFSET " + c.arg(int64(o.Offset))
	list.Args = c.Args
	return count, list
}

// CountDoomed counts the runs that a pruning removes, and their events. It follows a WITH
// that [Backend.Prune] makes.
const CountDoomed = " SELECT count(*), CAST(coalesce(sum(last_seq), 0) AS BIGINT) FROM doomed"

// Prune is PruneRuns of [eventlog.Store]. However many runs match, they are named by a
// condition and not one by one: doomed is a WITH that names them, for remove to begin its
// statements with. The statement mark, unless empty, records them in the log of runs.
// Runs that this log is at work on are left alone.
func (x *Backend) Prune(ctx context.Context, o eventlog.PruneOptions, remove func(doomed, mark string, args, marking []any) (eventlog.PruneReport, error)) (eventlog.PruneReport, error) {
	report := eventlog.PruneReport{DryRun: o.DryRun}
	if err := o.Valid(); err != nil {
		return report, err
	}
	if !o.DryRun {
		if err := x.Runs.Writable(); err != nil {
			return report, err
		}
	}
	if !x.holds(o.Namespace) {
		return report, nil
	}
	behind, err := x.behindOf(ctx, o.RunIDs)
	if err != nil {
		return report, err
	}
	if o.DryRun && (len(behind) > 0 || !x.Indexed()) {
		all, err := x.all(ctx, behind)
		for _, s := range o.Select(all) {
			report.Runs++
			report.Events += int64(s.LastSeq)
		}
		return report, err
	}
	if o.DryRun {
		doomed, args := x.doomed(o)
		return report, x.Read(ctx, func(q eventlog.Querier) error { return q.Query(doomed+CountDoomed, args, ScanReport(&report)) })
	}
	return x.Remove(ctx, o, remove)
}

// Remove is [Backend.Prune], of the runs as their rows describe them.
func (x *Backend) Remove(ctx context.Context, o eventlog.PruneOptions, remove func(doomed, mark string, args, marking []any) (eventlog.PruneReport, error)) (report eventlog.PruneReport, err error) {
	sealed, err := seal.Kept(ctx, x.Log)
	if err != nil {
		return report, x.failed("prune", err)
	}
	doomed, args := x.doomed(o)
	mark, marking := "", args
	if sealed {
		mark, marking = seal.MarkRemoved(time.Now(), o.Why, args)
	}
	if report, err = remove(doomed, mark, args, marking); err != nil {
		return eventlog.PruneReport{}, x.failed("prune", err)
	}
	return report, nil
}

// behindOf returns the runs whose rows lack events: of these runs, or of all if there are no ids.
func (x *Backend) behindOf(ctx context.Context, ids []string) ([]string, error) {
	if len(ids) == 0 || !x.Indexed() {
		return x.Behind(ctx, ForPruning)
	}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !x.holds(id) })
	sql := "WITH named (id) AS (" + fmt.Sprintf(x.Elements, "$1") + ") SELECT id FROM named LEFT JOIN run ON run.run_id = named.id" +
		" WHERE coalesce(run.last_seq, 0) < coalesce((SELECT " + x.LastSeq + " FROM eventlog_events WHERE eventlog_events.run_id = named.id" +
		strings.ReplaceAll(x.Partition, "$1", "named.id") + "), 0)"
	return x.Lagging(ctx, func() ([]string, error) { return x.IDs(ctx, sql, x.List(ids)) })
}

// ScanReport reads what [CountDoomed] returns.
func ScanReport(report *eventlog.PruneReport) func(eventlog.Row) error {
	return func(row eventlog.Row) error { return row.Scan(&report.Runs, &report.Events) }
}

func (x *Backend) doomed(o eventlog.PruneOptions) (with string, args []any) {
	c := x.Select(x.HasEvents).Namespace(o.Namespace)
	if o.FromULID+o.ToULID != "" {
		c.add(x.ULID + " >= " + c.arg(o.FromULID))
		if o.ToULID != "" {
			c.add(x.ULID + " < " + c.arg(o.ToULID))
		}
	}
	if !o.Before.IsZero() {
		c.add("started < " + c.arg(eventlog.Nanos(o.Before)))
	}
	c.status(o.Status)
	if !o.IncludeOpen {
		c.add("terminal <> 0")
	}
	if len(o.RunIDs) > 0 { // an id that the database cannot hold does not exist
		c.among("", slices.DeleteFunc(slices.Clone(o.RunIDs), func(id string) bool { return !x.holds(id) }))
	}
	c.among("NOT ", x.Runs.AtWork())
	oldest := ""
	if o.Limit > 0 { // without a sort of all for each few that are removed
		c.inOrder(o.Namespace)
		oldest = " ORDER BY started, " + x.Order + " LIMIT " + c.arg(int64(o.Limit))
	}
	return "WITH doomed AS (SELECT run_id, last_seq FROM run" + c.Where() + oldest + ")", c.Args
}
