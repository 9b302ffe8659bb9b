package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/workspace"
)

// Tree returns the contents of a tree of files by their paths, such as "src/main.c", each before the folder
// that lists it, and its root.
func Tree(files map[string]string) (contents []eventlog.Content, root canon.Hash) {
	var entries []workspace.Entry
	var uses []canon.Hash
	below := map[string]map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if folder, rest, deep := strings.Cut(path, "/"); deep {
			if below[folder] == nil {
				below[folder] = map[string]string{}
			}
			below[folder][rest] = files[path]
			continue
		}
		content := []byte(files[path])
		entries = append(entries, workspace.Entry{Name: path, Kind: workspace.File, Size: uint64(len(content)), Digest: canon.Sum(content)})
		contents = append(contents, eventlog.Content{Bytes: content})
	}
	for _, name := range slices.Sorted(maps.Keys(below)) {
		inside, digest := Tree(below[name])
		contents = append(contents, inside...)
		entries = append(entries, workspace.Entry{Name: name, Kind: workspace.Folder, Digest: digest})
	}
	for _, e := range entries {
		uses = append(uses, e.Digest)
	}
	list := workspace.Encode(entries)
	return append(contents, eventlog.Content{Bytes: list, Uses: uses}), canon.Sum(list)
}

// WithFiles returns a whole run with one call, which was given the files with one root and left those with
// another.
func WithFiles(runID string, given, left canon.Hash) []event.Event {
	c := Chain{RunID: runID, Clock: 1_700_000_000_000_000_000}
	args, _ := event.EncodePayload(map[string]int{})
	workspace := &event.Workspace{Root: given[:], Mounts: []event.Mount{{At: "/workspace", Writable: true}}}
	return []event.Event{
		c.Start("call"),
		c.Next(event.ToolCallScheduled{CallID: "c1", TurnID: "direct", ToolName: "t", Args: args, Attempt: 1, Workspace: workspace}),
		c.Next(event.ToolCallCompleted{CallID: "c1", Result: args, Attempt: 1, Meter: event.Meter{Workspace: left[:]}}),
		c.Complete(),
	}
}

// contentsKept stores contents of all sizes, twice, and reads them back.
func contentsKept(t *testing.T, log eventlog.EventLog) {
	ms, ok := log.(eventlog.ModuleStore)
	if !ok {
		t.Skip("SKIPPED: the log keeps no files")
	}
	noise := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{2}).Read(noise)
	files := map[string]string{"empty": "", "large": string(noise), "same/a": "same", "same/b": "same", "zeros": string(make([]byte, 1<<20))}
	for i := range 700 {
		files[fmt.Sprint("many/", i)] = fmt.Sprint("file ", i)
	}
	contents, _ := Tree(files)
	contents = append([]eventlog.Content{{}}, contents...) // of an empty file
	for range 2 {
		if err := ms.PutContents(t.Context(), "", contents); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range contents {
		if got, err := ms.Module(t.Context(), canon.Sum(c.Bytes)); err != nil || !bytes.Equal(got, c.Bytes) {
			t.Fatalf("a content of %d bytes came back with %d: %v", len(c.Bytes), len(got), err)
		}
	}
	if err := ms.PutContents(t.Context(), "", []eventlog.Content{{Bytes: []byte("f"), Uses: []canon.Hash{canon.Sum(noise), {1}}}}); !errors.Is(err, eventlog.ErrModuleNotFound) {
		t.Errorf("a folder that lists what is not stored: %v", err)
	}
	if err := ms.PutContents(t.Context(), "", []eventlog.Content{{Bytes: make([]byte, eventlog.MaxModuleBytes+1)}}); err == nil {
		t.Error("a content beyond the limit was taken")
	}
	if err := ms.PutContents(t.Context(), "", nil); err != nil {
		t.Errorf("no contents: %v", err)
	}
}

// contentsInUse removes runs that share files, in every order.
func contentsInUse(t *testing.T, log eventlog.EventLog) {
	db, ok := log.(eventlog.Database)
	if !ok {
		return // it removes no files
	}
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{"shared/deep/file": "shared", "empty": "", "shared/large": strings.Repeat("large", 200_000)}
	for i := range 600 {
		files[fmt.Sprint("many/", i)] = fmt.Sprint("file ", i)
	}
	given, from := Tree(files)
	files["own"] = "only the call has made this"
	left, to := Tree(files)
	must(db.PutContents(ctx, "", given))
	must(db.PutContents(ctx, "", left))
	prune := func(id string) eventlog.ModuleCount {
		t.Helper()
		_, err := db.PruneRuns(ctx, eventlog.PruneOptions{RunIDs: []string{id}})
		must(err)
		removed, err := db.RemoveUnusedModules(ctx)
		must(err)
		return removed
	}
	whole := func(root canon.Hash) (missing error) {
		return new(eventlog.Needs).Of(ctx, WithFiles("r", root, root)[1], db, func(eventlog.Need) error { return nil })
	}
	store(t, log, WithFiles("ns/one", from, to)...)
	store(t, log, WithFiles("ns/two", from, from)...)
	if removed := prune("nobody"); removed != (eventlog.ModuleCount{}) || whole(from) != nil || whole(to) != nil {
		t.Errorf("with all runs, %+v are removed, %v, %v", removed, whole(from), whole(to))
	}
	// The list of the root that the first run left, and the file that only that has.
	if removed := prune("ns/one"); removed.Modules != 2 || whole(from) != nil || !errors.Is(whole(to), eventlog.ErrModuleNotFound) {
		t.Errorf("with the second run, %+v are removed, %v, %v", removed, whole(from), whole(to))
	}
	if removed := prune("ns/two"); removed.Modules != len(distinct(given)) || !errors.Is(whole(from), eventlog.ErrModuleNotFound) {
		t.Errorf("without runs, %+v are removed of %d, %v", removed, len(distinct(given)), whole(from))
	}
	if c, err := eventlog.CountModules(ctx, db, ""); err != nil || c != (eventlog.ModuleCount{}) {
		t.Errorf("%+v are left, %v", c, err)
	}
	uses, err := eventlog.ViewAll(ctx, db, "SELECT used_by FROM module_use", nil, func(r eventlog.Row) (user string, err error) {
		err = r.Scan(&user)
		return user, err
	})
	if err != nil || len(uses) > 0 {
		t.Errorf("the users %q are left, %v", uses, err)
	}

	// What a run names too late is gone, whether it is the root that a call is given or the one it leaves.
	late := WithFiles("ns/late", from, to)
	must(db.Append(ctx, late[0].RunID, late[0]))
	err = db.Append(ctx, late[0].RunID, late[1])
	if err == nil {
		err = db.Sync(ctx, late[0].RunID)
	}
	if !errors.Is(err, eventlog.ErrModuleNotFound) || !errors.Is(err, eventlog.ErrInvalidAppend) {
		t.Errorf("a run whose files were removed: %v", err)
	}
	must(db.PutContents(ctx, "ns/later", given))
	later := WithFiles("ns/later", from, to)
	store(t, log, later[:2]...)
	if err = db.Append(ctx, later[0].RunID, later[2]); err == nil {
		err = db.Sync(ctx, later[0].RunID)
	}
	if !errors.Is(err, eventlog.ErrModuleNotFound) || !errors.Is(err, eventlog.ErrInvalidAppend) {
		t.Errorf("a call that left files that are not stored: %v", err)
	}

	// A file that is stored already, and a user that is no run.
	must(db.PutContents(ctx, "ns/entry", left))
	if removed := prune("nobody"); whole(to) != nil {
		t.Errorf("with the user of the last content, %+v are removed", removed)
	}
	must(db.Transact(ctx, func(tx eventlog.Tx) error {
		_, err := tx.Exec("DELETE FROM module_use WHERE used_by = 'ns/entry'")
		return err
	}))
	if removed, err := db.RemoveUnusedModules(ctx, to); err != nil || removed.Modules != 2 || whole(from) != nil {
		t.Errorf("of one root, %+v are removed, %v, %v", removed, err, whole(from))
	}
	// An imported run may have the id of a folder.
	name := eventlog.TreeUser(from)
	for _, e := range Finished(name, 1) {
		must(db.Import(ctx, e))
	}
	must(db.Sync(ctx, name))
	if removed := prune(name); removed != (eventlog.ModuleCount{}) || whole(from) != nil {
		t.Errorf("after a run with the name of a folder, %+v are removed, %v", removed, whole(from))
	}
}

// distinct returns the different contents.
func distinct(contents []eventlog.Content) map[canon.Hash]bool {
	all := map[canon.Hash]bool{}
	for _, c := range contents {
		all[canon.Sum(c.Bytes)] = true
	}
	return all
}

// contentsAtOnce stores files and begins runs with them while unused ones are removed: each durable run has
// all its files.
func contentsAtOnce(t *testing.T, log eventlog.EventLog) {
	db, ok := log.(eventlog.Database)
	if !ok {
		return // it removes no files
	}
	stop := removing(t, db)
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for i := range 12 {
				contents, root := Tree(map[string]string{"a/b": "b", "a/c": fmt.Sprint(i), "d": fmt.Sprint(w)})
				run := WithFiles(fmt.Sprintf("run-%d-%d", w, i), root, root)
				err := db.PutContents(t.Context(), "", contents)
				for _, e := range run {
					if err == nil {
						err = db.Append(t.Context(), e.RunID, e)
					}
				}
				if err == nil {
					err = db.Sync(t.Context(), run[0].RunID)
				}
				if err == nil {
					err = new(eventlog.Needs).Of(t.Context(), run[1], db, func(eventlog.Need) error { return nil })
				} else if errors.Is(err, eventlog.ErrModuleNotFound) {
					err = nil
				}
				if err != nil {
					t.Errorf("%s: %v", run[0].RunID, err)
				}
			}
		})
	}
	writers.Wait()
	stop()
}
