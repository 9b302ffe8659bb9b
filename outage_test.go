package starling_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// errAway is what a database says that cannot be reached. No package knows it.
var errAway = errors.New("the network is down")

// flaky is a database that goes away at one of its operations: from failing on, and until
// back, if that is not zero.
type flaky struct {
	store.Database
	done, failing, back int
}

func (f *flaky) next() error {
	f.done++
	if f.failing > 0 && f.done >= f.failing && (f.back == 0 || f.done < f.back) {
		return errAway
	}
	return nil
}

func (f *flaky) Run(ctx context.Context, id string) (eventlog.RunSummary, error) {
	if err := f.next(); err != nil {
		return eventlog.RunSummary{}, err
	}
	return f.Database.Run(ctx, id)
}

func (f *flaky) Read(ctx context.Context, id string) (all []event.Event, err error) {
	for e, err := range f.Events(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// Events goes away between two events, too.
func (f *flaky) Events(ctx context.Context, id string, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for e, err := range f.Database.Events(ctx, id, after) {
			if away := f.next(); away != nil {
				yield(event.Event{}, away)
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (f *flaky) ListRuns(ctx context.Context) ([]eventlog.RunSummary, error) {
	if err := f.next(); err != nil {
		return nil, err
	}
	return f.Database.ListRuns(ctx)
}

func (f *flaky) ListRunsPage(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error) {
	if err := f.next(); err != nil {
		return eventlog.RunPage{}, err
	}
	return f.Database.ListRunsPage(ctx, o)
}

func (f *flaky) Module(ctx context.Context, digest canon.Hash) ([]byte, error) {
	if err := f.next(); err != nil {
		return nil, err
	}
	return f.Database.Module(ctx, digest)
}

func (f *flaky) TableSteps(ctx context.Context, set eventlog.TableSet) (int, error) {
	if err := f.next(); err != nil {
		return 0, err
	}
	return f.Database.TableSteps(ctx, set)
}

func (f *flaky) View(ctx context.Context, fn func(eventlog.Querier) error) error {
	if err := f.next(); err != nil {
		return err
	}
	return f.Database.View(ctx, func(q eventlog.Querier) error { return fn(flakyQuerier{q, f}) })
}

func (f *flaky) Transact(ctx context.Context, fn func(eventlog.Tx) error) error {
	if err := f.next(); err != nil {
		return err
	}
	return f.Database.Transact(ctx, fn)
}

// flakyQuerier goes away before a statement and between two rows.
type flakyQuerier struct {
	eventlog.Querier
	of *flaky
}

func (q flakyQuerier) Query(sql string, args []any, row func(eventlog.Row) error) error {
	if err := q.of.next(); err != nil {
		return err
	}
	return q.Querier.Query(sql, args, func(r eventlog.Row) error {
		if err := q.of.next(); err != nil {
			return err
		}
		return row(r)
	})
}

// recorded returns a database with three runs of a tool, two of which a checkpoint has.
func recorded(t *testing.T) (db store.Database, key *seal.Key) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "starling.db")
	tools := starling.Must(starling.Open(t.Context(), path, starling.Options{}))
	command := (&wasmtest.Module{
		Memory:  wasmtest.Pages(1),
		Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Funcs:   []wasmtest.Func{{Export: "_start", Type: wasmtest.Type(":"), Code: new(wasm.Asm)}},
	}).Bytes()
	tool := starling.Must(tools.LoadBytes(t.Context(), "command", command, starling.ToolOptions{}))
	key = starling.Must(seal.NewKey("example.com/log"))
	for i := range 3 {
		if run, err := tool.Call(t.Context(), "{}"); run == nil { // which fails, as the command writes nothing
			t.Fatal(err)
		}
		if i == 1 {
			starling.Must(tools.Seal(t.Context(), key))
		}
	}
	if err := tools.Close(); err != nil {
		t.Fatal(err)
	}
	db = starling.Must(store.Open(t.Context(), path, store.Options{}))
	t.Cleanup(func() { db.Close() })
	return db, key
}

// TestAnOutageIsNoVerdict has a database go away at each operation of each command that looks
// at runs, for good or for one operation. What comes of it is an error and no verdict, and
// the same command of the same process succeeds when the database is back.
func TestAnOutageIsNoVerdict(t *testing.T) {
	inner, key := recorded(t)
	away := &flaky{Database: inner}
	db := starling.Over(away, starling.Options{Engine: starling.EngineOptions{Kind: starling.Interpreter}})
	defer db.Close()
	ids := func() []string {
		all, _ := inner.ListRuns(t.Context())
		return []string{all[2].RunID, all[1].RunID, all[0].RunID}
	}()
	verbs := map[string]func(context.Context) (verdict string, err error){
		"validate": func(ctx context.Context) (text string, err error) {
			err = db.ValidateAll(ctx, ids, func(v starling.Validation) error {
				text += fmt.Sprintf("%v %d;", v.Err, v.Report.Events)
				return nil
			})
			return text, err
		},
		"replay": func(ctx context.Context) (string, error) {
			v, err := db.Replay(ctx, starling.LastRun)
			return v.String(), err
		},
		"replay all": func(ctx context.Context) (text string, err error) {
			r, err := db.Replayer(ctx, starling.ReplayOptions{Engine: starling.EngineOptions{Kind: starling.Interpreter}})
			if err != nil {
				return "", err
			}
			defer r.Close()
			err = r.ReplayAll(ctx, ids, func(v starling.Verdict) error {
				text += v.String() + ";"
				return nil
			})
			return text, err
		},
		"verify": func(ctx context.Context) (string, error) {
			r, err := db.Verify(ctx, nil, seal.Evidence{})
			return fmt.Sprint(r.Problems, r.Present, r.Unsealed), err
		},
		"prove": func(ctx context.Context) (string, error) {
			s, err := db.Prove(ctx, ids[0], 2)
			return fmt.Sprint(s.Leaf.RunID), err
		},
		"bundle": func(ctx context.Context) (string, error) {
			b, err := db.Bundle(ctx, ids[0])
			return fmt.Sprint(len(b.Runs), len(b.Modules)), err
		},
		"archive": func(ctx context.Context) (string, error) {
			r, err := store.WriteArchive(ctx, io.Discard, away, eventlog.PruneOptions{})
			return fmt.Sprint(r), err
		},
		"import": func(ctx context.Context) (string, error) {
			var file bytes.Buffer
			starling.Must(store.WriteArchive(ctx, &file, inner, eventlog.PruneOptions{}))
			r, err := store.ImportArchive(ctx, away, bytes.NewReader(file.Bytes()))
			return fmt.Sprint(r), err
		},
		"seal": func(ctx context.Context) (string, error) {
			r, err := db.Seal(ctx, key)
			return fmt.Sprint(r.Checkpoint.Leaves), err
		},
	}
	for name, verb := range verbs {
		if name == "seal" {
			continue // which changes what verify finds
		}
		t.Run(name, func(t *testing.T) { testOutage(t, away, verb) })
	}
	t.Run("seal", func(t *testing.T) { testOutage(t, away, verbs["seal"]) })
}

func testOutage(t *testing.T, away *flaky, verb func(context.Context) (string, error)) {
	*away = flaky{Database: away.Database}
	for _, comesBack := range []bool{false, true} {
		failed := 0
		for n := 1; ; n++ {
			away.done, away.failing, away.back = 0, n, 0
			if comesBack {
				away.back = n + 1
			}
			during, err := verb(t.Context())
			if away.done < n {
				break
			}
			if err != nil {
				failed++
			}
			switch {
			case err == nil && !comesBack:
				t.Errorf("operation %d and all behind it failed, and nothing was said: %s", n, during)
			case err != nil && (eventlog.IsVerdict(err) || !errors.Is(err, errAway)):
				t.Errorf("operation %d: %v", n, err)
			}
			*away = flaky{Database: away.Database}
			after, err := verb(t.Context())
			if err != nil {
				t.Errorf("operation %d failed before: %v", n, err)
			}
			for _, verdict := range []string{"invalid", "corrupt", "diverged", "not replayed", "missing"} {
				if strings.Contains(during+after, verdict) {
					t.Errorf("operation %d: %s, and then: %s", n, during, after)
				}
			}
		}
		if failed == 0 {
			t.Error("no operation failed")
		}
	}
}
