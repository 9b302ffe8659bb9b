package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/user"
	"slices"
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
//	run_leaf        the leaves of runs; gone is not used any more
//	run_removal     removals of runs that are leaves; their own leaf is NULL until they are sealed
//	run_leaf_hash   the hashes of complete subtrees, in the order of package tlog
//	run_checkpoint  the checkpoints that were signed
//
// Times are in nanoseconds since 1970. Nothing in these tables is believed: [Seal] signs a
// leaf that the events of its run say, and [Verify] goes by signatures.
var Tables = eventlog.TableSet{
	Name: "seal", Tables: []string{"run_log", "run_leaf", "run_removal", "run_leaf_hash", "run_checkpoint"},
	Steps: []eventlog.TableStep{step(createTables), step(createRemovals)},
	Retention: map[string]string{"run_log": "SELECT", "run_leaf": "SELECT, INSERT", "run_leaf_hash": "SELECT, INSERT",
		"run_removal": "SELECT, INSERT, UPDATE"},
}

const (
	createTables = `CREATE TABLE run_log (
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
	// Until this step a removal was a time in run_leaf.
	createRemovals = `CREATE TABLE run_removal (
	run_id        TEXT    PRIMARY KEY NOT NULL,
	removed       INTEGER NOT NULL,
	removed_by    TEXT    NOT NULL,
	why           TEXT    NOT NULL,
	leaf          INTEGER UNIQUE
);
INSERT INTO run_removal (run_id, removed, removed_by, why)
	SELECT run_id, gone, '', 'removed by a version that did not record why' FROM run_leaf WHERE gone <> 0`
)

func step(sql string) eventlog.TableStep {
	return eventlog.TableStep{SQLite: sql, Postgres: strings.NewReplacer(" BLOB ", " BYTEA ", " INTEGER ", " BIGINT ",
		"run_id        TEXT ", `run_id        TEXT COLLATE "C" `).Replace(sql)}
}

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

// extend adds those that began at a time or later, in nanoseconds since 1970, and for
// [math.MinInt64] all of them, by their events alone.
func extend(ctx context.Context, db eventlog.Transactor, from int64) error {
	var after any = from
	if from == math.MinInt64 {
		after = ""
	}
	for {
		leaves, last, err := ended(ctx, db, after)
		if err == nil && len(leaves) > 0 {
			err = db.Transact(ctx, func(tx eventlog.Tx) error { return addLeaves(tx, leaves) })
		}
		if err != nil || last == nil {
			return err
		}
		after = last
	}
}

// What a pruning adds to its statements where there is a log of runs: a condition on the
// table run, and a statement that returns a row if a run in doomed waits for [Extend].
const (
	IsLeaf  = "(terminal = 0 OR EXISTS (SELECT 1 FROM run_leaf AS l WHERE l.run_id = run.run_id))"
	Waiting = " SELECT 1 FROM doomed JOIN run USING (run_id) WHERE NOT " + IsLeaf + " LIMIT 1"
)

// MarkRemoved returns the statement that records the removal of the runs in doomed that are
// leaves, by the user and host of this process. The next checkpoint seals it.
func MarkRemoved(now time.Time, why string) string {
	by, _ := os.Hostname()
	if u, err := user.Current(); err == nil {
		by = u.Username + "@" + by
	}
	literal := func(text string) string {
		text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
		return "'" + strings.ReplaceAll(text[:len(strings.ToValidUTF8(text[:min(len(text), maxReason)], ""))], "'", "''") + "'"
	}
	return fmt.Sprintf("INSERT INTO run_removal (run_id, removed, removed_by, why) SELECT run_id, %d, %s, %s FROM doomed"+
		" WHERE run_id IN (SELECT run_id FROM run_leaf) ON CONFLICT (run_id) DO NOTHING", now.UnixNano(), literal(by), literal(why))
}

// maxReason bounds what a removal says of itself, in bytes.
const maxReason = 500

// lastEvents are the columns of an event that [lastEvent] reads.
const lastEvents = "e.run_id, e.seq, e.prev_hash, e.ts, e.kind, e.payload"

func lastEvent(r eventlog.Row, more ...any) (e event.Event, err error) {
	var kind int64
	var payload []byte
	err = r.Scan(append([]any{&e.RunID, &e.Seq, &e.PrevHash, &e.Timestamp, &kind, &payload}, more...)...)
	e.Kind, e.Payload = event.Kind(kind), payload
	return e, err
}

// ended returns runs that have ended and are not in the log of runs, by their last events,
// and after what the next ones are: nil if there are no more. After a time these are the
// runs that began then or later and whose rows say that they have ended; after a text, all
// runs behind it, whatever their rows say.
func ended(ctx context.Context, db eventlog.Transactor, after any) (leaves []leafRow, last any, err error) {
	const fresh = " AND NOT EXISTS (SELECT 1 FROM run_leaf AS l WHERE l.run_id = x.run_id) "
	sql := "SELECT started, run_id, last_seq AS seq FROM run AS x WHERE started >= $2 AND terminal <> 0" + fresh + "ORDER BY started, run_id LIMIT $1"
	text, all := after.(string)
	if all {
		sql = "SELECT 0 AS started, run_id, max(seq) AS seq FROM eventlog_events AS x WHERE run_id > $2" + fresh + "GROUP BY run_id ORDER BY run_id LIMIT $1"
	}
	sql = "SELECT " + lastEvents + ", r.started FROM (" + sql + ") AS r JOIN eventlog_events AS e ON e.run_id = r.run_id AND e.seq = r.seq ORDER BY r.started, r.run_id"
	err = db.View(ctx, func(q eventlog.Querier) error {
		leaves, last = nil, nil
		began, n := int64(0), 0
		err := q.Query(sql, []any{int64(extendStep), after}, func(r eventlog.Row) error {
			e, err := lastEvent(r, &began)
			n, text = n+1, e.RunID
			if err != nil || !e.Kind.Terminal() {
				return err
			}
			l, err := LeafOf(e, e.Hash())
			leaves = append(leaves, leafRow{Leaf: l})
			return err
		})
		if n == extendStep {
			if last = began; all {
				last = text
			}
		}
		return err
	})
	return leaves, last, err
}

// extendRemovals adds the removals that are recorded and no leaf to the log of runs.
func extendRemovals(ctx context.Context, db eventlog.Transactor) error {
	const sql = `SELECT m.run_id, l.leaf, m.removed, m.removed_by, m.why FROM run_removal AS m JOIN run_leaf AS l ON l.run_id = m.run_id
	WHERE m.leaf IS NULL ORDER BY m.removed, m.run_id LIMIT $1`
	for {
		var leaves []leafRow
		err := db.Transact(ctx, func(tx eventlog.Tx) error {
			leaves = nil
			err := tx.Query(sql, []any{int64(extendStep)}, func(r eventlog.Row) error {
				var m Removal
				err := r.Scan(&m.RunID, &m.Leaf, &m.At, &m.By, &m.Why)
				leaves = append(leaves, leafRow{removal: &m})
				return err
			})
			if err != nil {
				return err
			}
			return addLeaves(tx, leaves)
		})
		if err != nil || len(leaves) < extendStep {
			return err
		}
	}
}

// addLeaves adds those leaves that are not there.
func addLeaves(tx eventlog.Tx, leaves []leafRow) error {
	if len(leaves) == 0 {
		return nil
	}
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
		if l.removal == nil && there[l.RunID] {
			continue
		}
		added, err := tlog.StoredHashes(n, l.Marshal(), read)
		if err != nil {
			return err
		}
		if l.removal != nil {
			if _, err := tx.Exec("UPDATE run_removal SET leaf = $1 WHERE run_id = $2", n, l.removal.RunID); err != nil {
				return err
			}
		} else {
			rows = append(rows, "("+placeholders(len(rowArgs)+1, 5)+")")
			rowArgs = append(rowArgs, n, l.RunID, int64(l.Events), l.MerkleRoot[:], l.TerminalHash[:])
		}
		for i, h := range added {
			place := tlog.StoredHashIndex(0, n) + int64(i)
			fresh[place] = h
			hashes = append(hashes, "("+placeholders(len(hashArgs)+1, 2)+")")
			hashArgs = append(hashArgs, place, h[:])
		}
		n++
	}
	if len(rows) > 0 {
		if _, err := tx.Exec("INSERT INTO run_leaf (leaf, run_id, events, merkle_root, terminal_hash) VALUES "+strings.Join(rows, ", "), rowArgs...); err != nil {
			return err
		}
	}
	if len(hashes) == 0 {
		return nil
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
	const sql = "SELECT (SELECT coalesce(max(leaf) + 1, 0) FROM run_leaf), (SELECT coalesce(max(leaf) + 1, 0) FROM run_removal)"
	removals := int64(0)
	err = q.Query(sql, nil, func(r eventlog.Row) error { return r.Scan(&n, &removals) })
	return max(n, removals), err
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
	Signed     []byte    // the checkpoint as a note
	New        bool      // it was signed now; there was one of all these leaves otherwise
	VKey       string    // under which it is signed
	Removed    int64     // leaves that are removals
	Removals   []Removal // those that this checkpoint is the first to seal
}

// ErrOtherKey: the newest checkpoint is signed by another key than the one that is to sign.
var ErrOtherKey = errors.New("seal: the newest checkpoint is signed by another key")

// Seal is [Sealer.Seal], once. Older are the public keys that k takes the place of: one of
// them, or k, must have signed the newest checkpoint.
func Seal(ctx context.Context, db eventlog.Transactor, k *Key, older ...string) (Result, error) {
	return sealFrom(ctx, db, k, math.MinInt64, older...)
}

// errMoved: another process has sealed the database meanwhile.
var errMoved = errors.New("seal: another process seals this database")

func sealFrom(ctx context.Context, db eventlog.Transactor, k *Key, from int64, older ...string) (s Result, err error) {
	trusted, err := Trust(append(older, k.VKey())...)
	if err == nil {
		err = db.CreateTables(ctx, Tables)
	}
	if err == nil {
		err = extend(ctx, db, from)
	}
	if err == nil {
		err = extendRemovals(ctx, db)
	}
	for range 3 {
		if err == nil {
			if s, err = sign(ctx, db, k, trusted); errors.Is(err, errMoved) {
				err = nil
				continue
			}
		}
		return s, err
	}
	return s, errMoved
}

// sign signs a checkpoint of all leaves. The tables may say anything, so the newest
// checkpoint has to be signed by a key that is trusted, its origin is that of the log, its
// leaves begin the tree, and of each leaf behind them the events say the same.
func sign(ctx context.Context, db eventlog.Transactor, k *Key, trusted *Policy) (s Result, err error) {
	var n int64
	var last Checkpoint
	var signed []byte
	var by []Signature
	var origin string
	err = db.View(ctx, func(q eventlog.Querier) error {
		last, signed, err = newest(q)
		if err == nil && signed != nil {
			last, by, err = trusted.Check(signed)
		}
		if err == nil {
			n, err = size(q)
		}
		if err == nil {
			origin, err = originOf(q)
		}
		return err
	})
	name := last.Origin[:max(0, strings.LastIndexByte(last.Origin, '/'))]
	switch {
	case errors.Is(err, ErrUntrusted) && name != "" && name != k.name:
		return s, fmt.Errorf("seal: the key is called %q, and the log of runs of this database is %s: want a key called %q", k.name, last.Origin, name)
	case errors.Is(err, ErrUntrusted):
		return s, fmt.Errorf("%w: its origin is %s", ErrOtherKey, last.Origin)
	case err != nil:
		return s, err
	case signed == nil: // whatever the tables say, this key has signed nothing of this database
		origin = k.NewOrigin()
	case origin != last.Origin:
		return s, fmt.Errorf("%w: the log of runs says that it is %q, and its newest checkpoint is of %s", eventlog.ErrLogCorrupt, origin, last.Origin)
	case n < last.Leaves:
		return s, fmt.Errorf("%w: the log of runs has %d leaves, and a checkpoint of %d was signed: it was rewritten or set back", eventlog.ErrLogCorrupt, n, last.Leaves)
	}
	own := slices.ContainsFunc(by, func(b Signature) bool { return b.VKey == k.For(origin).VKey() })
	s = Result{VKey: k.For(origin).VKey(), Checkpoint: Checkpoint{Origin: origin, Leaves: n}, Signed: signed}
	fresh, err := s.check(ctx, db, last.Leaves)
	if err != nil {
		return s, err
	}
	err = db.Transact(ctx, func(tx eventlog.Tx) error {
		_, still, err := newest(tx)
		if err == nil && !bytes.Equal(still, signed) {
			err = errMoved
		}
		if err != nil {
			return err
		}
		if err := tx.Query("SELECT count(*) FROM run_removal WHERE leaf < $1", []any{n}, func(r eventlog.Row) error { return r.Scan(&s.Removed) }); err != nil {
			return err
		}
		read := reader(tx, nil)
		if signed != nil && last.Leaves > 0 {
			if before, err := tlog.TreeHash(last.Leaves, read); err != nil || before != last.Root {
				return errors.Join(fmt.Errorf("%w: the log of runs does not begin with the %d leaves of the last checkpoint: it was rewritten", eventlog.ErrLogCorrupt, last.Leaves), err)
			}
		}
		if s.Checkpoint.Root, err = tlog.TreeHash(n, read); err != nil {
			return err
		}
		if sound, err := tlog.TreeHash(n, fresh.over(read)); err != nil || sound != s.Checkpoint.Root {
			return errors.Join(fmt.Errorf("%w: hashes of the log of runs behind leaf %d are not those of its leaves", eventlog.ErrLogCorrupt, last.Leaves), err)
		}
		if signed != nil && last.Leaves == n && own {
			return nil
		}
		if s.Signed, err = s.Checkpoint.Sign(k); err != nil {
			return err
		}
		if signed != nil && last.Leaves == n { // a new key signs what an older one has signed
			_, others, _ := bytes.Cut(signed, []byte("\n\n"))
			if s.Signed, err = AddCosignatures(s.Signed, others); err != nil {
				return err
			}
		}
		s.New = true
		if _, err := tx.Exec("INSERT INTO run_log (one, origin) VALUES (1, $1) ON CONFLICT (one) DO UPDATE SET origin = excluded.origin", origin); err != nil {
			return err
		}
		_, err = tx.Exec("INSERT INTO run_checkpoint (leaves, signed, made) VALUES ($1, $2, $3) ON CONFLICT (leaves) DO UPDATE SET signed = excluded.signed", n, s.Signed, time.Now().UnixNano())
		return err
	})
	return s, err
}

// tail is the hashes of a tree behind a place, which were computed.
type tail struct {
	from   int64
	hashes []Hash
}

// over reads the hashes before the place from elsewhere.
func (t *tail) over(stored tlog.HashReader) tlog.HashReader {
	return tlog.HashReaderFunc(func(places []int64) ([]Hash, error) {
		hashes := make([]Hash, len(places))
		for i, p := range places {
			if p >= t.from && p-t.from < int64(len(t.hashes)) {
				hashes[i] = t.hashes[p-t.from]
				continue
			}
			h, err := stored.ReadHashes([]int64{p})
			if err != nil {
				return nil, err
			}
			hashes[i] = h[0]
		}
		return hashes, nil
	})
}

// check computes the hashes of the leaves from number first on. Each has to be what the
// events of its run say, or what is recorded of a removal. A run that is not there has to
// have such a record: the checkpoint then seals both, and [Result].Removals shows it.
func (s *Result) check(ctx context.Context, db eventlog.Transactor, first int64) (*tail, error) {
	t := &tail{from: tlog.StoredHashIndex(0, first)}
	const events = "SELECT " + lastEvents + `, l.leaf FROM run_leaf AS l JOIN eventlog_events AS e ON e.run_id = l.run_id AND e.seq = l.events
	WHERE l.leaf >= $1 AND l.leaf < $2`
	const removed = "SELECT l.leaf FROM run_leaf AS l JOIN run_removal AS m ON m.run_id = l.run_id WHERE l.leaf >= $1 AND l.leaf < $2"
	for n := first; n < s.Checkpoint.Leaves; {
		page := []any{n, min(n+verifyStep, s.Checkpoint.Leaves)}
		err := db.View(ctx, func(q eventlog.Querier) error {
			said := map[int64]Leaf{}
			err := q.Query(events, page, func(r eventlog.Row) error {
				number := int64(0)
				e, err := lastEvent(r, &number)
				if err == nil {
					said[number], err = LeafOf(e, e.Hash())
				}
				return err
			})
			gone := map[int64]bool{}
			if err == nil {
				err = q.Query(removed, page, func(r eventlog.Row) error {
					number := int64(0)
					err := r.Scan(&number)
					gone[number] = true
					return err
				})
			}
			rows, err2 := leafRows(q, true, page)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			read := t.over(reader(q, nil))
			for _, row := range rows {
				is, here := said[row.number]
				switch {
				case row.number != n:
					return fmt.Errorf("%w: leaf %d of the log of runs is missing", eventlog.ErrLogCorrupt, n)
				case row.removal != nil:
					s.Removals = append(s.Removals, *row.removal)
				case here && is != row.Leaf:
					return fmt.Errorf("%w: leaf %d of the log of runs is not what the events of run %q say", eventlog.ErrLogCorrupt, n, row.RunID)
				case !here && !gone[n]:
					return fmt.Errorf("%w: leaf %d of the log of runs is of run %q, which is not here and has no recorded removal", eventlog.ErrLogCorrupt, n, row.RunID)
				}
				hashes, err := tlog.StoredHashes(n, row.Marshal(), read)
				if err != nil {
					return err
				}
				t.hashes = append(t.hashes, hashes...)
				n++
			}
			if n != page[1] {
				return fmt.Errorf("%w: leaf %d of the log of runs is missing", eventlog.ErrLogCorrupt, n)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return t, nil
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
			err := q.Query("SELECT leaf FROM run_leaf WHERE run_id = $1", []any{id}, func(r eventlog.Row) error { return r.Scan(&number) })
			switch {
			case err != nil:
				return err
			case number < 0 || number >= c.Leaves:
				return fmt.Errorf("%w: %q; the newest has the tree size %d", ErrNotSealed, id, c.Leaves)
			}
			rows, err := leafRows(q, false, []any{number, number + 1})
			if err != nil {
				return err
			}
			hashes, err := tlog.ProveRecord(c.Leaves, number, reader(q, nil))
			if err != nil {
				return err
			}
			leaves, proofs = append(leaves, rows[0].Leaf), append(proofs, Proof{Index: number, Hashes: hashes, Checkpoint: signed})
		}
		return nil
	})
	return leaves, proofs, err
}

// leafRow is a leaf with its number: of a run, or of a removal.
type leafRow struct {
	Leaf
	number  int64
	removal *Removal
}

// Marshal returns the leaf as it is hashed.
func (l leafRow) Marshal() []byte {
	if l.removal != nil {
		return l.removal.Marshal()
	}
	return l.Leaf.Marshal()
}

// leafRows reads leaves in their order, from one number to another. A database that was
// sealed by an earlier version alone has no removals.
func leafRows(q eventlog.Querier, removals bool, page []any) (rows []leafRow, err error) {
	sql := "SELECT leaf, run_id, events, merkle_root, terminal_hash, 0 AS of_leaf, 0 AS removed, '' AS removed_by, '' AS why FROM run_leaf WHERE leaf >= $1 AND leaf < $2"
	if removals {
		sql += ` UNION ALL SELECT m.leaf, m.run_id, 0, NULL, NULL, coalesce(l.leaf, -1), m.removed, m.removed_by, m.why
	FROM run_removal AS m LEFT JOIN run_leaf AS l ON l.run_id = m.run_id WHERE m.leaf >= $1 AND m.leaf < $2`
	}
	err = q.Query(sql+" ORDER BY 1", page, func(r eventlog.Row) error {
		var l leafRow
		var root, hash []byte
		m := Removal{}
		if err := r.Scan(&l.number, &l.RunID, &l.Events, &root, &hash, &m.Leaf, &m.At, &m.By, &m.Why); err != nil {
			return err
		}
		if copy(l.MerkleRoot[:], root); root == nil {
			m.RunID, l.removal = l.RunID, &m
		}
		copy(l.TerminalHash[:], hash)
		rows = append(rows, l)
		return nil
	})
	return rows, err
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
