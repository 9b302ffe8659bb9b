package seal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// Report is the result of [Verify].
type Report struct {
	Newest      Checkpoint  `json:"-"`
	Signed      time.Time   `json:"-"`                    // the time of signing, by the database
	Signatures  []Signature `json:"signatures,omitempty"` // of the newest checkpoint, by keys that the policy names
	Checkpoints int         `json:"checkpoints"`          // in the database; all are consistent if there is no problem

	Present  int64 `json:"present"`  // unchanged runs of the newest checkpoint in the database
	Gone     int64 `json:"gone"`     // missing runs whose removal the checkpoint has
	Archived int64 `json:"archived"` // those of Gone that an archive has as they were sealed
	Unsealed int64 `json:"unsealed"` // runs that ended and are not in the newest checkpoint
	Open     int64 `json:"open"`     // runs without an end

	Removals    []Removal `json:"removals,omitempty"`    // that the newest checkpoint has
	Unexplained []Problem `json:"unexplained,omitempty"` // missing runs of the checkpoint without a sealed removal
	Problems    []Problem `json:"problems,omitempty"`
}

// ReportDocument is a report as JSON.
type ReportDocument struct {
	Verdict    string              `json:"verdict"` // see [Report.Verdict]
	Trusted    bool                `json:"trusted"` // a key that was given has signed the newest checkpoint
	Checkpoint *CheckpointDocument `json:"checkpoint"`
	Report
}

// Document returns the report as a document.
func (r Report) Document() ReportDocument {
	return ReportDocument{r.Verdict(), len(r.Signatures) > 0, r.Newest.Document(), r}
}

// Verdict returns "valid", "unexplained" or "invalid".
func (r Report) Verdict() string {
	switch {
	case len(r.Problems) > 0:
		return "invalid"
	case len(r.Unexplained) > 0:
		return "unexplained"
	}
	return "valid"
}

// Problem is something that is not as a checkpoint says.
type Problem struct {
	RunID string     `json:"run_id,omitempty"` // empty for a problem that concerns no single run
	Leaf  LeafNumber `json:"leaf,omitzero"`
	Text  string     `json:"error"`
}

// LeafNumber is the number of a leaf, from 0; -1 for a problem without a leaf.
type LeafNumber int64

// IsZero reports whether there is no leaf.
func (n LeafNumber) IsZero() bool { return n < 0 }

// String returns the place of the problem and its description.
func (p Problem) String() string {
	switch {
	case p.RunID != "" && p.Leaf < 0:
		return fmt.Sprintf("run %s: %s", p.RunID, p.Text)
	case p.RunID != "":
		return fmt.Sprintf("run %s (leaf %d): %s", p.RunID, p.Leaf, p.Text)
	case p.Leaf >= 0:
		return fmt.Sprintf("leaf %d: %s", p.Leaf, p.Text)
	}
	return p.Text
}

// Evidence is what a verifier has besides the database.
type Evidence struct {
	Checkpoints [][]byte // signed; each must be of the same history
	Archives    []Archive
}

// Archive is a file with runs, each of which must be as it was sealed. Its reader has checked them.
type Archive struct {
	Name string
	Last map[string]canon.Hash // the hash of the last event of each run, by the id of the run
}

// RunChecker checks runs as stored, and calls found with the results, in their order.
// See [eventlog.CheckRun].
type RunChecker func(ctx context.Context, runIDs []string, found func(runID string, r eventlog.Report, err error) error) error

// verifyStep is how many runs are checked between two looks at the tables.
const verifyStep = 1000

// Verify checks a database against its newest checkpoint. Every run must be as it was sealed, or its
// removal must be sealed too. The database's checkpoints must be signed as the policy requires, and
// be consistent with one another and with the given ones. Only the newest and the given ones need the
// quorum of the policy.
//
// Problems are in the report. An error means that there is no report: [ErrNoLog] for a database that
// has never been sealed.
func Verify(ctx context.Context, db eventlog.Database, policy *Policy, given Evidence, check RunChecker) (r Report, err error) {
	v := &verification{report: &r, policy: policy, check: check, faults: map[int64]fault{}, newestOf: map[string]int64{}, awaited: map[int64][]awaited{}, sealed: map[canon.Hash]bool{}, archived: map[int64]bool{}}
	for _, a := range given.Archives {
		for _, last := range a.Last {
			v.sealed[last] = false
		}
	}
	if r.Newest, v.newest, err = Newest(ctx, db); err != nil {
		return r, err
	}
	if r.Newest, r.Signatures, err = policy.Check(v.newest); err != nil {
		v.problem(-1, "", "the newest checkpoint: %v", plain(err))
	}
	err = db.View(ctx, func(q eventlog.Querier) error {
		origin, err := originOf(q)
		if err == nil && origin != r.Newest.Origin {
			v.problem(-1, "", "the table run_log has the log %s, but the newest checkpoint is of %s", origin, r.Newest.Origin)
		}
		if err != nil {
			return err
		}
		return q.Query("SELECT DISTINCT run_id FROM run_removal", nil, func(row eventlog.Row) error {
			var id string
			err := row.Scan(&id)
			v.newestOf[id] = -1
			return err
		})
	})
	if err != nil {
		return r, err
	}
	for i, signed := range given.Checkpoints {
		c, _, err := policy.Check(signed)
		switch {
		case err != nil:
			v.problem(-1, "", "checkpoint %d that was given: %v", i+1, plain(err))
		case c.Origin != r.Newest.Origin:
			v.problem(-1, "", "the checkpoint that was given is of another log, %s; this one is %s", c.Origin, r.Newest.Origin)
		case c.Leaves > r.Newest.Leaves:
			v.problem(-1, "", "the database was reset to an older copy: the given checkpoint has %d runs, its newest has %d", c.Leaves, r.Newest.Leaves)
		default:
			v.await(c, "the checkpoint that was given", time.Time{})
		}
	}
	if err := v.checkpoints(ctx, db); err != nil {
		return r, err
	}
	if err := v.leaves(ctx, db); err != nil {
		return r, err
	}
	for _, a := range given.Archives {
		for _, id := range slices.Sorted(maps.Keys(a.Last)) {
			if last := a.Last[id]; !v.sealed[last] {
				v.problem(-1, id, "%s has it with the last hash %v, which is in no leaf: it was changed, never sealed, or is of another database", a.Name, last)
			}
		}
	}
	err = db.View(ctx, func(q eventlog.Querier) error {
		r.Unsealed, r.Open = 0, 0
		// By the events: the table run may lack a run, or have any content.
		const rest = `SELECT e.kind, count(*) FROM (SELECT run_id, max(seq) AS seq FROM eventlog_events AS x
	WHERE (SELECT count(*) FROM run_leaf AS l WHERE l.run_id = x.run_id AND l.leaf < $1)
		<= (SELECT count(*) FROM run_removal AS m WHERE m.run_id = x.run_id AND m.leaf < $1) GROUP BY run_id) AS r
	JOIN eventlog_events AS e ON e.run_id = r.run_id AND e.seq = r.seq GROUP BY e.kind`
		return q.Query(rest, []any{r.Newest.Leaves}, func(row eventlog.Row) error {
			var kind, runs int64
			err := row.Scan(&kind, &runs)
			if event.Kind(kind).Terminal() {
				r.Unsealed += runs
			} else {
				r.Open += runs
			}
			return err
		})
	})
	v.explain()
	return r, err
}

// explain takes the removals off the faults. A removal explains that the run of one leaf is away, and
// no other leaf of the run: what came back must be there, or have a removal of its own.
func (v *verification) explain() {
	removed, r := map[int64]bool{}, v.report
	for _, m := range r.Removals {
		if removed[m.Leaf] {
			continue
		}
		removed[m.Leaf] = true
		back := v.newestOf[m.RunID] > m.Leaf // what is there is compared with that leaf
		switch fault, wrong := v.faults[m.Leaf]; {
		case wrong && (fault.missing || back):
			delete(v.faults, m.Leaf)
		case !wrong && back:
			r.Present--
		default:
			continue
		}
		if r.Gone++; v.archived[m.Leaf] {
			r.Archived++
		}
	}
	for _, leaf := range slices.Sorted(maps.Keys(v.faults)) {
		if fault := v.faults[leaf]; fault.missing {
			r.Unexplained = append(r.Unexplained, fault.Problem)
		} else {
			r.Problems = append(r.Problems, fault.Problem)
		}
	}
}

// fault is a run that is not there as its leaf says.
type fault struct {
	Problem
	missing bool
}

// verification is the state of a verification.
type verification struct {
	report *Report
	policy *Policy
	check  RunChecker
	newest []byte

	awaited map[int64][]awaited // by number of leaves
	hashes  []Hash              // of the tree, in the order of package tlog
	sound   int64               // leaves of the last checkpoint that fits

	faults   map[int64]fault  // of runs, by the numbers of their leaves
	newestOf map[string]int64 // the newest leaf of each run for which the tables have a removal

	sealed   map[canon.Hash]bool // the last events of the runs in archives: whether a leaf has that hash
	archived map[int64]bool      // the leaves that have one of them
}

// awaited is a checkpoint whose number of leaves the tree has not reached.
type awaited struct {
	Checkpoint
	name string
}

func (v *verification) problem(leaf int64, runID, format string, args ...any) {
	v.report.Problems = append(v.report.Problems, Problem{runID, LeafNumber(leaf), fmt.Sprintf(format, args...)})
}

func (v *verification) await(c Checkpoint, name string, made time.Time) {
	v.awaited[c.Leaves] = append(v.awaited[c.Leaves], awaited{c, name})
	if name == "" {
		v.report.Checkpoints++
		v.report.Signed = made
	}
}

// checkpoints reads the database's checkpoints.
func (v *verification) checkpoints(ctx context.Context, db eventlog.Database) error {
	var logs *Policy // an older checkpoint may not have met its witnesses yet
	if v.policy != nil {
		logs = &Policy{logs: v.policy.logs}
	}
	return db.View(ctx, func(q eventlog.Querier) error {
		return q.Query("SELECT leaves, signed, made FROM run_checkpoint ORDER BY leaves", nil, func(row eventlog.Row) error {
			var leaves int64
			var signed []byte
			var made time.Time
			if err := row.Scan(&leaves, &signed, &made); err != nil {
				return err
			}
			c, _, err := logs.Check(signed)
			switch {
			case err != nil:
				v.problem(-1, "", "the checkpoint of %d runs: %v", leaves, plain(err))
			case c.Leaves != leaves || c.Origin != v.report.Newest.Origin:
				v.problem(-1, "", "the checkpoint of %d runs is of another log or number: %s, %d", leaves, c.Origin, c.Leaves)
			}
			v.await(c, "", made)
			return nil
		})
	})
}

// leaves reads the leaves, rebuilds the tree, and checks the run of each.
func (v *verification) leaves(ctx context.Context, db eventlog.Database) error {
	v.reached(0)
	for next := int64(0); next < v.report.Newest.Leaves; {
		var page []leafRow
		err := db.View(ctx, func(q eventlog.Querier) (err error) {
			page, err = leafRows(q, next, min(next+verifyStep, v.report.Newest.Leaves))
			return err
		})
		if err != nil {
			return err
		}
		if want := min(verifyStep, v.report.Newest.Leaves-next); int64(len(page)) < want {
			missing := next
			for _, l := range page {
				if l.number != missing {
					break
				}
				missing++
			}
			v.problem(missing, "", "is missing, so nothing after it can be checked")
			return nil
		}
		if err := v.page(ctx, db, page); err != nil {
			return err
		}
		next += int64(len(page))
	}
	return nil
}

// page checks leaves and their runs.
func (v *verification) page(ctx context.Context, db eventlog.Database, page []leafRow) error {
	kept := map[int64]Hash{}
	err := db.View(ctx, func(q eventlog.Querier) error {
		const sql = "SELECT place, hash FROM run_leaf_hash WHERE place >= $1 AND place <= $2"
		bounds := []any{tlog.StoredHashIndex(0, page[0].number), tlog.StoredHashIndex(0, page[len(page)-1].number)}
		return q.Query(sql, bounds, hashInto(kept))
	})
	if err != nil {
		return err
	}
	var ids []string
	var runs []leafRow // the rows of ids, in their order
	for _, l := range page {
		stored, err := tlog.StoredHashes(l.number, l.Marshal(), v)
		if err != nil {
			return err
		}
		if _, ok := v.sealed[l.TerminalHash]; ok && l.removal == nil {
			v.sealed[l.TerminalHash], v.archived[l.number] = true, true
		}
		if h, ok := kept[tlog.StoredHashIndex(0, l.number)]; !ok || h != stored[0] {
			v.problem(l.number, l.RunID, "the leaf was changed: its hash is not the one that was sealed")
		} else if l.removal != nil {
			v.report.Removals = append(v.report.Removals, *l.removal)
		} else {
			ids, runs = append(ids, l.RunID), append(runs, l)
			if _, removed := v.newestOf[l.RunID]; removed {
				v.newestOf[l.RunID] = l.number
			}
		}
		v.hashes = append(v.hashes, stored...)
		v.reached(l.number + 1)
	}
	i := -1
	return v.check(ctx, ids, func(id string, r eventlog.Report, err error) error {
		i++
		l := runs[i]
		wrong := func(format string, args ...any) {
			v.faults[l.number] = fault{Problem{id, LeafNumber(l.number), fmt.Sprintf(format, args...)}, errors.Is(err, eventlog.ErrRunNotFound)}
		}
		switch {
		case errors.Is(err, eventlog.ErrRunNotFound):
			wrong("is missing, and no sealed removal explains it")
		case err != nil:
			wrong("%v", plain(err))
		case r.Open || r.Events != l.Events:
			wrong("has %d events; %d were sealed", r.Events, l.Events)
		case leafOf(id, r) != l.Leaf:
			wrong("is not the run that was sealed: it is whole, and its last event has the hash %v, sealed was %v", r.Head, l.TerminalHash)
		default:
			v.report.Present++
		}
		return nil
	})
}

// reached compares the checkpoints of that many leaves with the tree.
func (v *verification) reached(n int64) {
	for _, c := range v.awaited[n] {
		name := cmp.Or(c.name, "the checkpoint")
		root, err := tlog.TreeHash(n, v)
		switch {
		case err != nil:
			v.problem(-1, "", "%s of %d runs: %v", name, n, err)
		case root != c.Root:
			v.problem(-1, "", "%s of %d runs has another tree: something between run %d and run %d of the log was changed, removed or put elsewhere", name, n, v.sound+1, n)
		default:
			v.sound = n
		}
	}
}

// ReadHashes reads the rebuilt part of the tree.
func (v *verification) ReadHashes(places []int64) ([]Hash, error) {
	hashes := make([]Hash, len(places))
	for i, p := range places {
		if p >= int64(len(v.hashes)) {
			return nil, fmt.Errorf("seal: hash %d of %d", p, len(v.hashes))
		}
		hashes[i] = v.hashes[p]
	}
	return hashes, nil
}

// plain returns an error without the name of this package.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "seal: ") }
