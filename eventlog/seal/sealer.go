package seal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"golang.org/x/mod/sumdb/tlog"
)

// Sealer seals one database again and again. It is not safe for concurrent use.
type Sealer struct {
	db  eventlog.Database
	key *Key

	looked time.Time // when all runs were looked at
	from   int64     // runs that began earlier wait for the next look at all
}

// NewSealer returns a sealer.
func NewSealer(db eventlog.Database, k *Key) *Sealer { return &Sealer{db: db, key: k} }

// lookEvery is how often a sealer looks at all runs, which takes longer the more there are.
// In between it looks at the runs that can have ended since: it begins with the oldest run
// that was open then, if that began within lookEvery. So a run that took longer, or was
// imported, is sealed an hour late at most. Clocks of hosts differ by less than clockSkew.
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
	err := s.db.View(ctx, func(q eventlog.Querier) error { // before the search for ended runs
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

// Result is the result of [Seal].
type Result struct {
	Checkpoint Checkpoint
	Signed     []byte    // the checkpoint as a note
	New        bool      // it was signed now; otherwise one of all these leaves existed
	VKey       string    // under which it is signed
	Removed    int64     // leaves that are removals
	Removals   []Removal // removals that no earlier checkpoint has
	Refused    []Refusal // runs that have ended and are invalid, so that nothing was signed about them
}

// Refusal is a run that was not sealed.
type Refusal struct {
	RunID string
	Err   error
}

// ErrOtherKey means that the newest checkpoint is signed by a key other than the signing one.
var ErrOtherKey = errors.New("seal: the newest checkpoint is signed by another key")

// Seal is [Sealer.Seal], once. Older are the public keys that k replaces: one of them, or
// k, must have signed the newest checkpoint.
func Seal(ctx context.Context, db eventlog.Database, k *Key, older ...string) (Result, error) {
	return sealFrom(ctx, db, k, math.MinInt64, older...)
}

// errMoved: another process seals the database at the same time.
var errMoved = errors.New("seal: another process seals this database")

func sealFrom(ctx context.Context, db eventlog.Database, k *Key, from int64, older ...string) (s Result, err error) {
	trusted, err := Trust(append(older, k.VKey())...)
	if err == nil {
		err = db.CreateTables(ctx, Tables)
	}
	for attempt := 0; err == nil && attempt < 3; attempt++ {
		var e *extension
		if e, err = begin(ctx, db, k, trusted); err == nil {
			err = e.extend(ctx, db, from)
		}
		if err == nil {
			s, err = e.sign(ctx, db, k)
		}
		if !errors.Is(err, errMoved) && !errors.Is(err, eventlog.ErrConflict) {
			return s, err
		}
		err = nil
	}
	return s, cmp.Or(err, errMoved)
}

// extension is the part added after the newest checkpoint.
type extension struct {
	last   Checkpoint
	signed []byte // nil without a checkpoint
	own    bool   // the signing key has signed it

	leaves   int64
	fresh    map[int64]Hash // computed hashes after the checkpoint
	removals []Removal
	refused  []Refusal
}

// begin checks the signature of the newest checkpoint, and removes the leaves after it:
// leaves of an interrupted seal, or forged ones.
func begin(ctx context.Context, db eventlog.Transactor, k *Key, trusted *Policy) (*extension, error) {
	e := &extension{fresh: map[int64]Hash{}}
	var by []Signature
	err := db.Transact(ctx, func(tx eventlog.Tx) (err error) {
		e.last, e.signed, err = newest(tx)
		if err == nil && e.signed != nil {
			e.last, by, err = trusted.Check(e.signed)
		}
		origin, err2 := originOf(tx)
		n, err3 := size(tx)
		name := e.last.Origin[:max(0, strings.LastIndexByte(e.last.Origin, '/'))]
		switch {
		case errors.Is(err, ErrUntrusted) && name != k.name:
			return fmt.Errorf("seal: the key is called %q, and the log of runs of this database is %s: want a key called %q", k.name, e.last.Origin, name)
		case errors.Is(err, ErrUntrusted):
			return fmt.Errorf("%w: its origin is %s", ErrOtherKey, e.last.Origin)
		case err != nil || err2 != nil || err3 != nil:
			return errors.Join(err, err2, err3)
		case e.signed == nil: // no key has signed this database, even if it has tables
			e.last.Origin = k.NewOrigin()
		case origin != e.last.Origin:
			return fmt.Errorf("%w: the log of runs has the origin %q, but its newest checkpoint is of %s", eventlog.ErrLogCorrupt, origin, e.last.Origin)
		case n < e.last.Leaves:
			return fmt.Errorf("%w: the log of runs has %d leaves, and a checkpoint of %d was signed: it was rewritten or reset", eventlog.ErrLogCorrupt, n, e.last.Leaves)
		}
		e.leaves = e.last.Leaves
		place := int64(0)
		if e.leaves > 0 {
			place = tlog.StoredHashIndex(0, e.leaves)
			if before, err := tlog.TreeHash(e.leaves, reader(tx, nil)); err != nil || before != e.last.Root {
				return errors.Join(fmt.Errorf("%w: the log of runs does not begin with the %d leaves of the last checkpoint: it was rewritten", eventlog.ErrLogCorrupt, e.leaves), err)
			}
		}
		_, err = tx.Exec("DELETE FROM run_leaf WHERE leaf >= $1", e.leaves)
		_, err2 = tx.Exec("DELETE FROM run_leaf_hash WHERE place >= $1", place)
		_, err3 = tx.Exec("UPDATE run_removal SET leaf = NULL WHERE leaf >= $1", e.leaves)
		return errors.Join(err, err2, err3)
	})
	e.own = slices.ContainsFunc(by, func(b Signature) bool { return b.VKey == k.For(e.last.Origin).VKey() })
	return e, err
}

// extend adds the recorded removals, and then the runs that have ended, so that a run that was removed
// and is back gets its new leaf behind its removal. The leaf of a run is what the check of its events
// returned: a run that is invalid gets none. It adds the runs that began at from or later, in
// nanoseconds since 1970, or all for [math.MinInt64].
func (e *extension) extend(ctx context.Context, db eventlog.Database, from int64) error {
	add := func(leaves []leafRow) error {
		var added []Hash
		err := db.Transact(ctx, func(tx eventlog.Tx) (err error) {
			added, err = addLeaves(tx, e.leaves, leaves)
			return err
		})
		for i, h := range added {
			e.fresh[tlog.StoredHashIndex(0, e.leaves)+int64(i)] = h
		}
		e.leaves += int64(len(leaves))
		return err
	}
	for more := true; more; {
		leaves, err := removals(ctx, db)
		if err == nil && len(leaves) > 0 {
			err = add(leaves)
		}
		for _, l := range leaves {
			e.removals = append(e.removals, *l.removal)
		}
		if err != nil {
			return err
		}
		more = len(leaves) == extendStep
	}
	var next any = from
	if from == math.MinInt64 {
		next = ""
	}
	for next != nil {
		ids, after, err := ended(ctx, db, next)
		if err != nil {
			return err
		}
		var leaves []leafRow
		for _, id := range ids {
			switch r, err := eventlog.CheckRun(ctx, db, id, eventlog.CheckOptions{Strict: true}); {
			case err == nil:
				leaves = append(leaves, leafRow{Leaf: leafOf(id, r)})
			case ctx.Err() == nil && eventlog.IsVerdict(err):
				e.refused = append(e.refused, Refusal{id, err})
			default:
				return err
			}
		}
		if len(leaves) > 0 {
			if err := add(leaves); err != nil {
				return err
			}
		}
		next = after
	}
	return nil
}

// sign signs a checkpoint of the leaves, by the computed hashes of the new ones.
func (e *extension) sign(ctx context.Context, db eventlog.Transactor, k *Key) (Result, error) {
	s := Result{VKey: k.For(e.last.Origin).VKey(), Checkpoint: Checkpoint{Origin: e.last.Origin, Leaves: e.leaves}, Removals: e.removals, Refused: e.refused}
	err := db.Transact(ctx, func(tx eventlog.Tx) error {
		_, still, err := newest(tx)
		if err != nil {
			return err
		}
		stored, err := tlog.TreeHash(e.leaves, reader(tx, nil))
		if err == nil {
			s.Checkpoint.Root, err = tlog.TreeHash(e.leaves, reader(tx, e.fresh))
		}
		if !bytes.Equal(still, e.signed) || err == nil && stored != s.Checkpoint.Root || errors.Is(err, eventlog.ErrLogCorrupt) {
			return errMoved
		}
		if err == nil {
			err = tx.Query("SELECT count(*) FROM run_removal WHERE leaf < $1", []any{e.leaves}, func(r eventlog.Row) error { return r.Scan(&s.Removed) })
		}
		s.Signed, s.New = e.signed, e.signed == nil || !e.own || e.leaves > e.last.Leaves
		if err != nil || !s.New {
			return err
		}
		if s.Signed, err = s.Checkpoint.Sign(k); err != nil {
			return err
		}
		if e.signed != nil && e.leaves == e.last.Leaves { // a new key signs a checkpoint of an older one
			_, others, _ := bytes.Cut(e.signed, []byte("\n\n"))
			if s.Signed, err = AddCosignatures(s.Signed, others); err != nil {
				return err
			}
		}
		_, err = tx.Exec("INSERT INTO run_log (one, origin) VALUES (1, $1) ON CONFLICT (one) DO UPDATE SET origin = excluded.origin", s.Checkpoint.Origin)
		if err == nil {
			_, err = tx.Exec("INSERT INTO run_checkpoint (leaves, signed, made) VALUES ($1, $2, $3) ON CONFLICT (leaves) DO UPDATE SET signed = excluded.signed",
				e.leaves, s.Signed, time.Now().UnixNano())
		}
		return err
	})
	return s, err
}
