package seal

import (
	"context"
	"crypto/ed25519"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// Tables keep the log of runs of a database. They are created when the database is sealed
// for the first time.
//
//	run_log         its origin
//	run_leaf        the leaves of runs; a run that was removed and came back has another one
//	run_removal     removals of runs that are leaves; their own leaf is NULL until they are sealed
//	run_leaf_hash   the hashes of complete subtrees, in the order of package tlog
//	run_checkpoint  the checkpoints that were signed
//
// Times are in nanoseconds since 1970. Nothing in these tables is believed: [Seal] makes the
// leaves that no checkpoint has again from events, and [Verify] goes by signatures.
var Tables = eventlog.TableSet{
	Name: "seal", Tables: []string{"run_log", "run_leaf", "run_removal", "run_leaf_hash", "run_checkpoint"},
	Steps:     []string{createTables, createRemovals, allowReturns},
	Retention: map[string]string{"run_log": "SELECT", "run_leaf": "SELECT", "run_removal": "SELECT, INSERT"},
}

var (
	//go:embed schema/create.sql
	createTables string
	// createRemovals is for the databases of earlier commits, whose first step had no such table.
	//
	//go:embed schema/removals.sql
	createRemovals string
	// allowReturns lets a run have a leaf and a removal each time it is sealed and removed.
	//
	//go:embed schema/returns.sql
	allowReturns string
)

// ErrNoLog: the database has never been sealed.
var ErrNoLog = errors.New("seal: the database has never been sealed")

// Kept reports whether the database keeps a log of runs. It may have the tables alone.
// Tables of an earlier commit are [eventlog.ErrSchemaOutdated].
func Kept(ctx context.Context, db eventlog.Transactor) (bool, error) {
	switch steps, err := db.TableSteps(ctx, Tables); {
	case err != nil || steps == 0:
		return false, err
	case steps < len(Tables.Steps):
		return false, Outdated(steps)
	}
	origin, err := eventlog.View(ctx, db, originOf)
	return origin != "", err
}

// Outdated is the error of [Tables] of an earlier version, by their last step. What such a table lacks
// was not lost.
func Outdated(steps int) error {
	return fmt.Errorf("%w: an earlier version made the tables %q (step %d of %d)", eventlog.ErrSchemaOutdated, Tables.Name, steps, len(Tables.Steps))
}

// extendStep is how many leaves one transaction adds at most.
const extendStep = 500

// MarkRemoved returns the statement that records the removal of the runs in doomed that are
// leaves, by the user and host of this process, and its parameters, which follow args. The next
// checkpoint seals it.
func MarkRemoved(now time.Time, why string, args []any) (string, []any) {
	by, _ := os.Hostname()
	if u, err := user.Current(); err == nil {
		by = u.Username + "@" + by
	}
	text := func(s string) string { // as every database can hold it
		s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
		return strings.ToValidUTF8(s[:min(len(s), maxReason)], "")
	}
	n := len(args)
	return fmt.Sprintf("INSERT INTO run_removal (run_id, removed, removed_by, why) SELECT run_id, CAST($%d AS BIGINT), CAST($%d AS TEXT), CAST($%d AS TEXT) FROM doomed"+
		" WHERE NOT "+unsealed("doomed")+" ON CONFLICT DO NOTHING", n+1, n+2, n+3), append(slices.Clip(args), now.UnixNano(), text(by), text(why))
}

// unsealed is the condition that each leaf of a run has its removal, as with a run that has none: the
// run was never sealed, or was removed and is back.
func unsealed(table string) string {
	return "(SELECT count(*) FROM run_leaf AS l WHERE l.run_id = " + table + ".run_id) <= (SELECT count(*) FROM run_removal AS m WHERE m.run_id = " + table + ".run_id)"
}

// maxReason bounds the reason of a removal, in bytes.
const maxReason = 500

// ended returns the ids of ended runs that are not in the log of runs, by their last events, and the
// value of after for the next call: nil if there are no more. If after is a time, these
// are the runs that began then or later and whose rows have an end; if it is a text, those
// of the next runs after it, whatever their rows contain. One call reads a bounded part of the database.
func ended(ctx context.Context, db eventlog.Transactor, after any) (ids []string, last any, err error) {
	// In SQLite a text in place of a time sorts above all integers: such a run waits for the look at
	// all runs. A join with the events would let a server read all of them.
	const kind = "coalesce((SELECT kind FROM eventlog_events AS e WHERE e.run_id = x.run_id"
	sql := "SELECT run_id, " + kind + " AND e.seq = x.last_seq), 0), started FROM run AS x WHERE started BETWEEN $2 AND 9223372036854775807 AND terminal <> 0 AND " +
		unsealed("x") + " ORDER BY started, run_id LIMIT $1"
	text, all := after.(string)
	if all {
		sql = "SELECT run_id, CASE WHEN " + unsealed("x") + " THEN " + kind + " ORDER BY seq DESC LIMIT 1), 0) ELSE 0 END, 0" +
			" FROM (SELECT DISTINCT run_id FROM eventlog_events WHERE run_id > $2 ORDER BY run_id LIMIT $1) AS x ORDER BY run_id"
	}
	err = db.View(ctx, func(q eventlog.Querier) error {
		ids, last = nil, nil
		began, n := int64(0), 0
		err := q.Query(sql, []any{int64(extendStep), after}, func(r eventlog.Row) error {
			var kind int64
			err := r.Scan(&text, &kind, &began)
			if n++; err == nil && event.Kind(kind).Terminal() {
				ids = append(ids, text)
			}
			return err
		})
		if n == extendStep {
			if last = began; all {
				last = text
			}
		}
		return err
	})
	return ids, last, err
}

// removals returns recorded removals that are not leaves yet.
func removals(ctx context.Context, db eventlog.Transactor) ([]leafRow, error) {
	const sql = `SELECT m.run_id, (SELECT max(l.leaf) FROM run_leaf AS l WHERE l.run_id = m.run_id), m.removed, m.removed_by, m.why FROM run_removal AS m
	WHERE m.leaf IS NULL AND EXISTS (SELECT 1 FROM run_leaf AS l WHERE l.run_id = m.run_id) ORDER BY m.removed, m.run_id LIMIT $1`
	return eventlog.ViewAll(ctx, db, sql, []any{int64(extendStep)}, func(r eventlog.Row) (leafRow, error) {
		var m Removal
		err := r.Scan(&m.RunID, &m.Leaf, &m.At, &m.By, &m.Why)
		return leafRow{removal: &m}, err
	})
}

// addLeaves adds leaves after the existing n.
func addLeaves(tx eventlog.Tx, n int64, leaves []leafRow) (added []Hash, err error) {
	fresh := map[int64]Hash{}
	var rows, hashes []string
	var rowArgs, hashArgs []any
	read := reader(tx, fresh)
	for _, l := range leaves {
		own, err := tlog.StoredHashes(n, l.Marshal(), read)
		if err != nil {
			return nil, err
		}
		if l.removal != nil {
			if _, err := tx.Exec("UPDATE run_removal SET leaf = $1 WHERE run_id = $2 AND removed = $3", n, l.removal.RunID, l.removal.At.UnixNano()); err != nil {
				return nil, err
			}
		} else {
			rows = append(rows, "("+placeholders(len(rowArgs)+1, 5)+")")
			rowArgs = append(rowArgs, n, l.RunID, int64(l.Events), l.MerkleRoot[:], l.TerminalHash[:])
		}
		for i, h := range own {
			place := tlog.StoredHashIndex(0, n) + int64(i)
			fresh[place] = h
			hashes = append(hashes, "("+placeholders(len(hashArgs)+1, 2)+")")
			hashArgs = append(hashArgs, place, h[:])
		}
		added = append(added, own...)
		n++
	}
	if len(rows) > 0 {
		if _, err := tx.Exec("INSERT INTO run_leaf (leaf, run_id, events, merkle_root, terminal_hash) VALUES "+strings.Join(rows, ", "), rowArgs...); err != nil {
			return nil, err
		}
	}
	_, err = tx.Exec("INSERT INTO run_leaf_hash (place, hash) VALUES "+strings.Join(hashes, ", "), hashArgs...)
	return added, err
}

// placeholders returns n of them, from $first on.
func placeholders(first, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("$%d", first+i)
	}
	return strings.Join(all, ", ")
}

// size returns the number of leaves.
func size(q eventlog.Querier) (n int64, err error) {
	const sql = "SELECT (SELECT coalesce(max(leaf) + 1, 0) FROM run_leaf), (SELECT coalesce(max(leaf) + 1, 0) FROM run_removal)"
	removals := int64(0)
	err = q.Query(sql, nil, func(r eventlog.Row) error { return r.Scan(&n, &removals) })
	return max(n, removals), err
}

// reader reads the hashes of subtrees, also ones not yet in the tables.
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
			if err := q.Query("SELECT place, hash FROM run_leaf_hash WHERE place IN ("+placeholders(1, len(args))+")", args, hashInto(found)); err != nil {
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

// hashInto reads a row of run_leaf_hash. Values that are not hashes are left out.
func hashInto(found map[int64]Hash) func(eventlog.Row) error {
	return func(r eventlog.Row) error {
		var place int64
		var hash []byte
		err := r.Scan(&place, &hash)
		if err == nil && len(hash) == len(Hash{}) {
			found[place] = Hash(hash)
		}
		return err
	}
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

// newest returns the checkpoint with the most leaves, or nil.
func newest(q eventlog.Querier) (c Checkpoint, signed []byte, err error) {
	err = q.Query("SELECT signed FROM run_checkpoint ORDER BY leaves DESC LIMIT 1", nil, func(r eventlog.Row) error { return r.Scan(&signed) })
	if err == nil && signed != nil {
		c, err = ParseCheckpoint(signed)
	}
	return c, signed, err
}

// Newest returns the newest checkpoint of the database. Without one it returns [ErrNoLog].
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
	return eventlog.View(ctx, db, func(q eventlog.Querier) ([]Hash, error) { return tlog.ProveTree(c.Leaves, leaves, reader(q, nil)) })
}

// KeepCosignatures adds lines of cosignatures to a checkpoint that the database keeps, and
// returns it.
func KeepCosignatures(ctx context.Context, db eventlog.Transactor, c Checkpoint, lines []byte) (signed []byte, err error) {
	for line := range strings.SplitSeq(strings.TrimSuffix(string(lines), "\n"), "\n") {
		if _, sig, err := signatureOf(line); err != nil {
			return nil, err
		} else if len(sig) != 4+8+ed25519.SignatureSize {
			return nil, fmt.Errorf("seal: %.80q is not a cosignature: it has %d bytes", line, len(sig))
		}
	}
	err = db.Transact(ctx, func(tx eventlog.Tx) error {
		signed = nil
		err := tx.Query("SELECT signed FROM run_checkpoint WHERE leaves = $1", []any{c.Leaves}, func(r eventlog.Row) error { return r.Scan(&signed) })
		if err == nil {
			signed, err = AddCosignatures(signed, lines)
		}
		if err == nil {
			_, err = tx.Exec("UPDATE run_checkpoint SET signed = $1 WHERE leaves = $2", signed, c.Leaves)
		}
		return err
	})
	return signed, err
}

// ErrNotSealed: no checkpoint has the run.
var ErrNotSealed = errors.New("seal: no checkpoint has the run")

// Prove proves that runs are in the newest checkpoint, in their order. It does not look at their
// events, which may have been removed: a run that is there is proven by [ProveRuns].
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
			const newestLeaf = "SELECT leaf FROM run_leaf WHERE run_id = $1 AND leaf < $2 ORDER BY leaf DESC LIMIT 1"
			err := q.Query(newestLeaf, []any{id, c.Leaves}, func(r eventlog.Row) error { return r.Scan(&number) })
			switch {
			case err != nil:
				return err
			case number < 0:
				return fmt.Errorf("%w: %q; the newest has the tree size %d", ErrNotSealed, id, c.Leaves)
			}
			rows, err := leafRows(q, number, number+1)
			if err != nil {
				return err
			}
			hashes, err := tlog.ProveRecord(c.Leaves, number, reader(q, nil))
			if err != nil {
				return err
			}
			p := Proof{Index: number, Hashes: hashes, Checkpoint: signed}
			if _, _, err := p.Check(rows[0].Leaf, nil); err != nil { // the tables are not to be believed
				return fmt.Errorf("%w: %w", eventlog.ErrLogCorrupt, err)
			}
			leaves, proofs = append(leaves, rows[0].Leaf), append(proofs, p)
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

// leafRows reads leaves in their order, from one number to another.
func leafRows(q eventlog.Querier, from, to int64) ([]leafRow, error) {
	const sql = `SELECT leaf, run_id, events, merkle_root, terminal_hash, 0 AS of_leaf, 0 AS removed, '' AS removed_by, '' AS why
	FROM run_leaf WHERE leaf >= $1 AND leaf < $2
	UNION ALL SELECT m.leaf, m.run_id, 0, NULL, NULL, coalesce((SELECT max(l.leaf) FROM run_leaf AS l WHERE l.run_id = m.run_id AND l.leaf < m.leaf), -1),
		m.removed, m.removed_by, m.why FROM run_removal AS m WHERE m.leaf >= $1 AND m.leaf < $2
	ORDER BY 1`
	return eventlog.QueryAll(q, sql, []any{from, to}, func(r eventlog.Row) (l leafRow, err error) {
		var root, hash []byte
		m := Removal{}
		err = r.Scan(&l.number, &l.RunID, &l.Events, &root, &hash, &m.Leaf, &m.At, &m.By, &m.Why)
		if copy(l.MerkleRoot[:], root); root == nil {
			m.RunID, l.removal = l.RunID, &m
		}
		copy(l.TerminalHash[:], hash)
		return l, err
	})
}

// ProveEvent proves that an event is part of a run in the newest checkpoint, without its
// other events. The database gives the run as stored.
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
	if _, _, err := s.Check(nil); err != nil { // the events are not those that were sealed
		return s, fmt.Errorf("%w: %w", eventlog.ErrLogCorrupt, err)
	}
	return s, nil
}
