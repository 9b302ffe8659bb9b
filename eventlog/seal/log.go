package seal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"golang.org/x/mod/sumdb/tlog"
)

// Tables keep the log of runs of a database. They are created when the database is sealed
// for the first time.
//
//	run_log         its origin
//	run_leaf        its leaves; gone is when the run was removed, 0 if it was not
//	run_leaf_hash   the hashes of complete subtrees, in the order of package tlog
//	run_checkpoint  the checkpoints that were signed
//
// Times are in nanoseconds since 1970. What is in these tables is trusted when a
// checkpoint is signed, and by [Verify] only as far as signatures go.
var Tables = eventlog.TableSet{
	Name: "seal", Tables: []string{"run_log", "run_leaf", "run_leaf_hash", "run_checkpoint"}, Steps: []eventlog.TableStep{tables},
	Retention: map[string]string{"run_log": "SELECT", "run_leaf": "SELECT, INSERT, UPDATE", "run_leaf_hash": "SELECT, INSERT"},
}

var tables = func() eventlog.TableStep {
	const sql = `CREATE TABLE run_log (
	one    INTEGER PRIMARY KEY CHECK (one = 1),
	origin TEXT    NOT NULL
);
CREATE TABLE run_leaf (
	leaf          INTEGER PRIMARY KEY,
	run_id        TEXT    NOT NULL UNIQUE,
	events        INTEGER NOT NULL,
	merkle_root   BLOB    NOT NULL,
	terminal_hash BLOB    NOT NULL,
	gone          INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE run_leaf_hash (
	place INTEGER PRIMARY KEY,
	hash  BLOB    NOT NULL
);
CREATE TABLE run_checkpoint (
	leaves INTEGER PRIMARY KEY,
	signed BLOB    NOT NULL,
	made   INTEGER NOT NULL
)`
	return eventlog.TableStep{SQLite: sql, Postgres: strings.NewReplacer(" BLOB ", " BYTEA ", " INTEGER ", " BIGINT ",
		"run_id        TEXT ", `run_id        TEXT COLLATE "C" `).Replace(sql)}
}()

// ErrNoLog: the database has never been sealed.
var ErrNoLog = errors.New("seal: the database has never been sealed")

// Kept reports whether the database keeps a log of runs. It may have the tables alone.
func Kept(ctx context.Context, db eventlog.Transactor) (bool, error) {
	if steps, err := db.TableSteps(ctx, Tables); err != nil || steps == 0 {
		return false, err
	}
	origin := ""
	err := db.View(ctx, func(q eventlog.Querier) (err error) {
		origin, err = originOf(q)
		return err
	})
	return origin != "", err
}

// extendStep is how many leaves one transaction adds at most.
const extendStep = 500

// Extend adds the runs that have ended to the log of runs that the database keeps. Runs are
// added when a checkpoint is signed and before runs are removed: a log removes no run that
// has ended and is not a leaf.
func Extend(ctx context.Context, db eventlog.Transactor) error {
	return extend(ctx, db, math.MinInt64)
}

// extend adds those that began at a time or later, in nanoseconds since 1970. The oldest
// are added first, so each step begins where the one before has ended.
func extend(ctx context.Context, db eventlog.Transactor, from int64) error {
	for {
		leaves, last, err := ended(ctx, db, from)
		if err != nil || len(leaves) == 0 {
			return err
		}
		if err := db.Transact(ctx, func(tx eventlog.Tx) error { return addLeaves(tx, leaves) }); err != nil {
			return err
		}
		if len(leaves) < extendStep {
			return nil
		}
		from = last
	}
}

// What a pruning adds to its statements where there is a log of runs: a condition on the
// table run, a statement that returns a row if a run in doomed waits for [Extend], and one
// that marks the leaves of the runs in doomed.
const (
	IsLeaf   = "(terminal = 0 OR EXISTS (SELECT 1 FROM run_leaf AS l WHERE l.run_id = run.run_id))"
	Waiting  = " SELECT 1 FROM doomed JOIN run USING (run_id) WHERE NOT " + IsLeaf + " LIMIT 1"
	markGone = "UPDATE run_leaf SET gone = %d WHERE run_id IN (SELECT run_id FROM doomed)"
)

// MarkGone returns the statement that notes of the runs in doomed that they are removed.
func MarkGone(now time.Time) string { return fmt.Sprintf(markGone, now.UnixNano()) }

// ended returns runs that have ended and are not in the log of runs, and when the last of
// them began.
func ended(ctx context.Context, db eventlog.Transactor, from int64) (leaves []Leaf, began int64, err error) {
	const sql = `SELECT r.started, r.run_id, r.last_seq, r.head, e.kind, e.payload FROM (
	SELECT started, run_id, last_seq, head FROM run WHERE started >= $2 AND terminal <> 0
		AND NOT EXISTS (SELECT 1 FROM run_leaf AS l WHERE l.run_id = run.run_id) ORDER BY started, run_id LIMIT $1
) AS r JOIN eventlog_events AS e ON e.run_id = r.run_id AND e.seq = r.last_seq ORDER BY r.started, r.run_id`
	err = db.View(ctx, func(q eventlog.Querier) error {
		leaves = nil
		return q.Query(sql, []any{int64(extendStep), from}, func(r eventlog.Row) error {
			var last event.Event
			var head, payload []byte
			var kind int64
			if err := r.Scan(&began, &last.RunID, &last.Seq, &head, &kind, &payload); err != nil {
				return err
			}
			last.Kind, last.Payload = event.Kind(kind), payload
			if len(head) != len(canon.Hash{}) {
				return fmt.Errorf("seal: run %q: the log keeps a hash of %d bytes", last.RunID, len(head))
			}
			l, err := LeafOf(last, canon.Hash(head))
			leaves = append(leaves, l)
			return err
		})
	})
	return leaves, began, err
}

// addLeaves adds those leaves that are not there, in two statements.
func addLeaves(tx eventlog.Tx, leaves []Leaf) error {
	there := map[string]bool{}
	marks, args := placeholders(1, len(leaves)), make([]any, len(leaves))
	for i, l := range leaves {
		args[i] = l.RunID
	}
	err := tx.Query("SELECT run_id FROM run_leaf WHERE run_id IN ("+marks+")", args, func(r eventlog.Row) error {
		var id string
		err := r.Scan(&id)
		there[id] = true
		return err
	})
	n, err2 := size(tx)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	fresh := map[int64]Hash{}
	var rows, hashes []string
	var rowArgs, hashArgs []any
	read := reader(tx, fresh)
	for _, l := range leaves {
		if there[l.RunID] {
			continue
		}
		added, err := tlog.StoredHashes(n, l.Marshal(), read)
		if err != nil {
			return err
		}
		rows = append(rows, "("+placeholders(len(rowArgs)+1, 5)+")")
		rowArgs = append(rowArgs, n, l.RunID, int64(l.Events), l.MerkleRoot[:], l.TerminalHash[:])
		for i, h := range added {
			place := tlog.StoredHashIndex(0, n) + int64(i)
			fresh[place] = h
			hashes = append(hashes, "("+placeholders(len(hashArgs)+1, 2)+")")
			hashArgs = append(hashArgs, place, h[:])
		}
		n++
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := tx.Exec("INSERT INTO run_leaf (leaf, run_id, events, merkle_root, terminal_hash) VALUES "+strings.Join(rows, ", "), rowArgs...); err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO run_leaf_hash (place, hash) VALUES "+strings.Join(hashes, ", "), hashArgs...)
	return err
}

// placeholders returns n of them, from $first on.
func placeholders(first, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "$%d", first+i)
	}
	return b.String()
}

// size returns the number of leaves.
func size(q eventlog.Querier) (n int64, err error) {
	err = q.Query("SELECT coalesce(max(leaf) + 1, 0) FROM run_leaf", nil, func(r eventlog.Row) error { return r.Scan(&n) })
	return n, err
}

// reader reads the hashes of subtrees, of which some may not be in the tables yet.
func reader(q eventlog.Querier, fresh map[int64]Hash) tlog.HashReader {
	return tlog.HashReaderFunc(func(places []int64) ([]Hash, error) {
		found := map[int64]Hash{}
		var args []any
		for _, p := range places {
			if h, ok := fresh[p]; ok {
				found[p] = h
			} else {
				args = append(args, p)
			}
		}
		if len(args) > 0 {
			err := q.Query("SELECT place, hash FROM run_leaf_hash WHERE place IN ("+placeholders(1, len(args))+")", args, func(r eventlog.Row) error {
				var place int64
				var hash []byte
				if err := r.Scan(&place, &hash); err != nil {
					return err
				}
				if len(hash) == len(Hash{}) {
					found[place] = Hash(hash)
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
		hashes := make([]Hash, len(places))
		for i, p := range places {
			h, ok := found[p]
			if !ok {
				return nil, fmt.Errorf("%w: the log of runs lacks hash %d", eventlog.ErrLogCorrupt, p)
			}
			hashes[i] = h
		}
		return hashes, nil
	})
}

// Sealer seals one database again and again. It is not safe for concurrent use.
type Sealer struct {
	db  eventlog.Transactor
	key *Key

	looked time.Time // when all runs were looked at
	from   int64     // runs that began earlier wait for the next look at all
}

// NewSealer returns a sealer.
func NewSealer(db eventlog.Transactor, k *Key) *Sealer { return &Sealer{db: db, key: k} }

// lookEvery is how often a sealer looks at all runs, which takes longer the more there are.
// In between it looks at those that can have ended since the last time: it begins with the
// oldest run that was open then, if that began within lookEvery. So a run that took longer,
// or was imported, is sealed an hour late at most. Clocks of hosts differ by less than
// clockSkew.
const (
	lookEvery = time.Hour
	clockSkew = time.Minute
)

// Seal adds the runs that have ended to the log of runs and signs a checkpoint of it, which
// the database keeps. The first time begins the log.
func (s *Sealer) Seal(ctx context.Context) (Result, error) {
	now, from := time.Now(), s.from
	all := now.Sub(s.looked) >= lookEvery
	if all {
		from = math.MinInt64
	}
	next := now.Add(-clockSkew).UnixNano()
	err := s.db.View(ctx, func(q eventlog.Querier) error { // before the runs that have ended are looked for
		const sql = "SELECT started FROM run WHERE started >= $1 AND started < $2 AND terminal = 0 ORDER BY started LIMIT 1"
		return q.Query(sql, []any{max(from, now.Add(-lookEvery).UnixNano()), next}, func(r eventlog.Row) error { return r.Scan(&next) })
	})
	if err != nil {
		return Result{}, err
	}
	sealed, err := sealFrom(ctx, s.db, s.key, from)
	if err == nil {
		s.from = next
		if all {
			s.looked = now
		}
	}
	return sealed, err
}

// Result is what came of [Seal].
type Result struct {
	Checkpoint Checkpoint
	Signed     []byte // the checkpoint as a note
	New        bool   // it was signed now; there was one of all these leaves otherwise
	VKey       string // under which it is signed
}

// Seal is [Sealer.Seal], once.
func Seal(ctx context.Context, db eventlog.Transactor, k *Key) (Result, error) {
	return sealFrom(ctx, db, k, math.MinInt64)
}

func sealFrom(ctx context.Context, db eventlog.Transactor, k *Key, from int64) (Result, error) {
	if err := db.CreateTables(ctx, Tables); err != nil {
		return Result{}, err
	}
	origin, err := begin(ctx, db, k)
	if err != nil {
		return Result{}, err
	}
	if err := extend(ctx, db, from); err != nil {
		return Result{}, err
	}
	s := Result{VKey: k.For(origin).VKey()}
	err = db.Transact(ctx, func(tx eventlog.Tx) error {
		n, err := size(tx)
		if err != nil {
			return err
		}
		read := reader(tx, nil)
		s.Checkpoint = Checkpoint{Origin: origin, Leaves: n}
		if s.Checkpoint.Root, err = tlog.TreeHash(n, read); err != nil {
			return err
		}
		last, signed, err := newest(tx)
		switch {
		case err != nil:
			return err
		case signed != nil && last.Leaves == n && last.Root == s.Checkpoint.Root:
			s.Signed, s.New = signed, false
			return nil
		case signed != nil && last.Leaves >= n:
			return fmt.Errorf("%w: the log of runs has %d leaves, and a checkpoint of %d was signed: it was rewritten or set back", eventlog.ErrLogCorrupt, n, last.Leaves)
		case signed != nil && last.Leaves > 0:
			if before, err := tlog.TreeHash(last.Leaves, read); err != nil || before != last.Root {
				return errors.Join(fmt.Errorf("%w: the log of runs does not begin with the %d leaves of the last checkpoint: it was rewritten", eventlog.ErrLogCorrupt, last.Leaves), err)
			}
		}
		if s.Signed, err = s.Checkpoint.Sign(k); err != nil {
			return err
		}
		s.New = true
		_, err = tx.Exec("INSERT INTO run_checkpoint (leaves, signed, made) VALUES ($1, $2, $3)", n, s.Signed, time.Now().UnixNano())
		return err
	})
	return s, err
}

// begin returns the origin of the log of runs, which the first key draws.
func begin(ctx context.Context, db eventlog.Transactor, k *Key) (origin string, err error) {
	err = db.Transact(ctx, func(tx eventlog.Tx) error {
		if origin, err = originOf(tx); err != nil || origin != "" {
			return err
		}
		origin = k.NewOrigin()
		_, err := tx.Exec("INSERT INTO run_log (one, origin) VALUES (1, $1)", origin)
		return err
	})
	if err == nil && !isOriginOf(origin, k.name) {
		name := origin[:max(0, strings.LastIndexByte(origin, '/'))]
		err = fmt.Errorf("seal: the key is called %q, and the log of runs of this database is %s: want a key called %q", k.name, origin, name)
	}
	return origin, err
}

// Forget removes the log of runs with its checkpoints, so that the next seal begins another
// one, under an origin of its own: for a database that was set back to an older copy, whose
// log would be a second history. Runs that were removed are in the new one no more.
func Forget(ctx context.Context, db eventlog.Transactor) error {
	if ok, err := Kept(ctx, db); err != nil || !ok {
		return err
	}
	return db.Transact(ctx, func(tx eventlog.Tx) error {
		for _, table := range Tables.Tables {
			if _, err := tx.Exec("DELETE FROM " + table); err != nil {
				return err
			}
		}
		return nil
	})
}

func originOf(q eventlog.Querier) (origin string, err error) {
	err = q.Query("SELECT origin FROM run_log", nil, func(r eventlog.Row) error { return r.Scan(&origin) })
	return origin, err
}

// newest returns the checkpoint of the most leaves, and nil if there is none.
func newest(q eventlog.Querier) (c Checkpoint, signed []byte, err error) {
	err = q.Query("SELECT signed FROM run_checkpoint ORDER BY leaves DESC LIMIT 1", nil, func(r eventlog.Row) error { return r.Scan(&signed) })
	if err == nil && signed != nil {
		c, err = ParseCheckpoint(signed)
	}
	return c, signed, err
}

// Newest returns the newest checkpoint of the database. It is [ErrNoLog] if there is none.
func Newest(ctx context.Context, db eventlog.Transactor) (c Checkpoint, signed []byte, err error) {
	ok, err := Kept(ctx, db)
	if err == nil && !ok {
		err = ErrNoLog
	}
	if err != nil {
		return c, nil, err
	}
	err = db.View(ctx, func(q eventlog.Querier) error {
		c, signed, err = newest(q)
		return err
	})
	if err == nil && signed == nil {
		err = ErrNoLog
	}
	return c, signed, err
}

// Consistency proves that the log of the newest checkpoint begins with that many leaves
// (RFC 6962, section 2.1.2), for witnesses.
func Consistency(ctx context.Context, db eventlog.Transactor, c Checkpoint, leaves int64) (proof []Hash, err error) {
	if leaves <= 0 || leaves >= c.Leaves {
		return nil, nil
	}
	err = db.View(ctx, func(q eventlog.Querier) error {
		proof, err = tlog.ProveTree(c.Leaves, leaves, reader(q, nil))
		return err
	})
	return proof, err
}

// KeepCosignatures adds lines of cosignatures to a checkpoint that the database keeps, and
// returns it.
func KeepCosignatures(ctx context.Context, db eventlog.Transactor, c Checkpoint, lines []byte) (signed []byte, err error) {
	err = db.Transact(ctx, func(tx eventlog.Tx) error {
		signed = nil
		if err := tx.Query("SELECT signed FROM run_checkpoint WHERE leaves = $1", []any{c.Leaves}, func(r eventlog.Row) error { return r.Scan(&signed) }); err != nil {
			return err
		}
		var err error
		if signed, err = AddCosignatures(signed, lines); err != nil {
			return err
		}
		_, err = tx.Exec("UPDATE run_checkpoint SET signed = $1 WHERE leaves = $2", signed, c.Leaves)
		return err
	})
	return signed, err
}

// ErrNotSealed: no checkpoint has the run.
var ErrNotSealed = errors.New("seal: no checkpoint has the run")

// Prove proves that runs are in the newest checkpoint, in their order.
func Prove(ctx context.Context, db eventlog.Transactor, runIDs ...string) (leaves []Leaf, proofs []Proof, err error) {
	if _, _, err := Newest(ctx, db); err != nil {
		return nil, nil, err
	}
	err = db.View(ctx, func(q eventlog.Querier) error {
		leaves, proofs = nil, nil
		c, signed, err := newest(q)
		if err != nil {
			return err
		}
		for _, id := range runIDs {
			number := int64(-1)
			l := Leaf{}
			const sql = "SELECT leaf, run_id, events, merkle_root, terminal_hash, gone FROM run_leaf WHERE run_id = $1"
			err := q.Query(sql, []any{id}, func(r eventlog.Row) (err error) {
				row := leafRow{}
				err = row.scan(r)
				number, l = row.number, row.Leaf
				return err
			})
			switch {
			case err != nil:
				return err
			case number < 0 || number >= c.Leaves:
				return fmt.Errorf("%w: %q; the newest was signed when %d had ended", ErrNotSealed, id, c.Leaves)
			}
			hashes, err := tlog.ProveRecord(c.Leaves, number, reader(q, nil))
			if err != nil {
				return err
			}
			leaves, proofs = append(leaves, l), append(proofs, Proof{Index: number, Hashes: hashes, Checkpoint: signed})
		}
		return nil
	})
	return leaves, proofs, err
}

// leafRow is a row of run_leaf.
type leafRow struct {
	Leaf
	number int64
	gone   int64
}

func (l *leafRow) scan(r eventlog.Row) error {
	var root, hash []byte
	if err := r.Scan(&l.number, &l.RunID, &l.Events, &root, &hash, &l.gone); err != nil {
		return err
	}
	copy(l.MerkleRoot[:], root)
	copy(l.TerminalHash[:], hash)
	return nil
}

// ProveEvent proves that an event is part of a run in the newest checkpoint, without its
// other events. The database gives the run as it is stored.
func ProveEvent(ctx context.Context, db eventlog.Database, runID string, seq uint64) (Statement, error) {
	leaves, proofs, err := Prove(ctx, db, runID)
	if err != nil {
		return Statement{}, err
	}
	s := Statement{Leaf: leaves[0], Proof: proofs[0]}
	if seq < 1 || seq > s.Leaf.Events {
		return s, fmt.Errorf("seal: run %q has %d events, and no event %d", runID, s.Leaf.Events, seq)
	}
	var hashes []canon.Hash
	for e, err := range db.Events(ctx, runID, 0) {
		if err != nil {
			return s, err
		}
		envelope, err := event.Marshal(e)
		if err != nil {
			return s, err
		}
		if !e.Kind.Terminal() {
			hashes = append(hashes, event.Hash(envelope))
		}
		if e.Seq == seq {
			s.Event = &e
		}
	}
	if s.Event == nil {
		return s, fmt.Errorf("%w: run %q lacks event %d", eventlog.ErrLogCorrupt, runID, seq)
	}
	if seq < s.Leaf.Events {
		if s.Path, err = canon.Prove(hashes, int(seq-1)); err != nil {
			return s, err
		}
	}
	return s, nil
}
