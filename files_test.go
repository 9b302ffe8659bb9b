package starling_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/store"
)

// losing is a database that loses contents: the first that are put, as a prune at the same time would take
// them, and one that is read.
type losing struct {
	store.Database
	puts int
	lost canon.Hash
}

func (l *losing) PutContents(ctx context.Context, user string, contents []eventlog.Content) error {
	if l.puts++; l.puts <= 2 {
		return eventlog.ErrModuleNotFound
	}
	return l.Database.PutContents(ctx, user, contents)
}

func (l *losing) Module(ctx context.Context, digest canon.Hash) ([]byte, error) {
	if digest == l.lost {
		return nil, eventlog.ErrModuleNotFound
	}
	return l.Database.Module(ctx, digest)
}

// TestFilesComeFromTheDatabase gives a call two folders and removes them. What a content that is lost leads to
// is not a result of the tool, live or in a replay.
func TestFilesComeFromTheDatabase(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: compiles CPython")
	}
	file, err := store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "files.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log := &losing{Database: file}
	db := starling.Over(log, starling.Options{})
	defer db.Close()
	folder, more := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{folder: "40", more: "2"} {
		if err := os.WriteFile(filepath.Join(path, "n"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := db.Files(t.Context(), starling.Folder{Path: folder}, starling.Folder{Path: more, At: "/data/more"})
	if err != nil {
		t.Fatal(err)
	}
	tool, err := db.Load(t.Context(), starling.RunPy, starling.ToolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const program = `{"code":"try:\n  n = int(open('n').read()) + int(open('/data/more/n').read())\nexcept OSError as e:\n  n = str(e)\nn"}`
	run, err := tool.In(files).Call(t.Context(), program)
	if err != nil || run.Output() != "42" || len(run.Workspace) != 64 {
		t.Fatalf("%+v %v", run, err)
	}
	for _, path := range []string{folder, more} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	if verdict, err := db.Replay(t.Context(), run.ID); err != nil || !verdict.Identical() {
		t.Errorf("the replay: %+v %v", verdict, err)
	}
	if run, err := tool.Call(t.Context(), program); err != nil || run.Output() == "42" || run.Workspace != "" {
		t.Errorf("a call without files: %+v %v", run, err)
	}
	log.lost = canon.Sum([]byte("2"))
	if verdict, err := db.Replay(t.Context(), run.ID); err != nil || !strings.HasPrefix(verdict.String(), "invalid: ") {
		t.Errorf("a replay without a file: %+v %v", verdict, err)
	}
	if run, err := tool.In(files).Call(t.Context(), program); run != nil || !errors.Is(err, eventlog.ErrLogCorrupt) {
		t.Errorf("a call without a file: %+v %v", run, err)
	}
}

func TestNoFolders(t *testing.T) {
	db, err := starling.Open(t.Context(), filepath.Join(t.TempDir(), "files.db"), starling.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tool, err := db.Load(t.Context(), starling.RunJS, starling.ToolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	none, err := db.Files(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range []*starling.Files{nil, none, {}} {
		if run, err := tool.In(files).Call(t.Context(), `{"code":"return 1"}`); err != nil || run.Output() != "1" || run.Workspace != "" {
			t.Errorf("%+v, %v", run, err)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.Files(cancelled, starling.Folder{Path: t.TempDir()}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestFoldersThatCannotBeGiven(t *testing.T) {
	db, err := starling.Open(t.Context(), filepath.Join(t.TempDir(), "files.db"), starling.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	folder := t.TempDir()
	for name, folders := range map[string][]starling.Folder{
		"missing":  {{Path: filepath.Join(folder, "missing")}},
		"no name":  {{At: "/data"}},
		"a name":   {{Path: folder, At: "/" + strings.Repeat("a", 256)}},
		"bytes":    {{Path: folder, At: "/\xff"}},
		"deep":     {{Path: folder, At: strings.Repeat("/a", 201)}},
		"a root":   {{Path: folder, At: "/"}},
		"relative": {{Path: folder, At: "data"}},
		"twice":    {{Path: folder}, {Path: folder}},
		"inside":   {{Path: folder, At: "/data"}, {Path: folder, At: "/data/more"}},
	} {
		_, err := db.Files(t.Context(), folders...)
		if _, ok := errors.AsType[*starling.FolderError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
