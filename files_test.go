package starling_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
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
	full bool // nothing more can be put
}

func (l *losing) PutContents(ctx context.Context, user string, contents []eventlog.Content) error {
	if l.full {
		return errors.New("the disk is full")
	}
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

// TestFilesAreWrittenBack lets calls change a folder of two that they are given.
func TestFilesAreWrittenBack(t *testing.T) {
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
	loaded, err := db.Load(t.Context(), starling.RunPy, starling.ToolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	folder, fixed := t.TempDir(), t.TempDir()
	path := filepath.Join(folder, "n")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	has := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("the file has %q, %v; want %q", text, err, want)
		}
	}
	given := func() (*starling.Files, *starling.Tool) {
		t.Helper()
		files, err := db.Files(t.Context(), starling.Folder{Path: folder, Writable: true}, starling.Folder{Path: fixed, At: "/fixed"})
		if err != nil {
			t.Fatal(err)
		}
		return files, loaded.In(files)
	}
	const add = `{"code":"n = int(open('n').read()) + 1\nopen('n', 'w').write(str(n))\nopen('new', 'w').write('new')\nn"}`
	write("1")
	files, tool := given()
	run, err := tool.Call(t.Context(), add)
	if err != nil || run.Output() != "2" {
		t.Fatalf("%+v %v", run, err)
	}
	has("1")
	if changed, err := files.WriteBack(t.Context(), run.ID); err != nil || !slices.Equal(changed, []string{path, filepath.Join(folder, "new")}) {
		t.Errorf("%q, %v", changed, err)
	}
	has("2")

	write("5") // the user does
	again, err := tool.Call(t.Context(), add)
	if err != nil || again.Output() != "2" || again.Workspace != run.Workspace {
		t.Errorf("a second call with the same files: %+v %v", again, err)
	}
	changed, err := files.WriteBack(t.Context(), again.ID)
	if bad, ok := errors.AsType[*starling.FolderError](err); !ok || bad.Path != folder || changed != nil || !strings.Contains(err.Error(), `changed "n, new" since`) {
		t.Errorf("%q, %v", changed, err)
	}
	has("5")

	files, tool = given()
	failed, err := tool.Call(t.Context(), `{"code":"open('n', 'w').write('x')\n1/0"}`)
	if failed == nil || err == nil || failed.Workspace != "" {
		t.Errorf("%+v %v", failed, err)
	}
	if changed, err := files.WriteBack(t.Context(), failed.ID); changed != nil || err != nil {
		t.Errorf("%q, %v", changed, err)
	}
	if run, err := tool.Call(t.Context(), `{"code":"open('/fixed/n', 'w')"}`); err == nil {
		t.Errorf("a folder that is only read: %+v", run)
	}
	has("5")
	inside, err := starling.Open(t.Context(), filepath.Join(folder, "own.db"), starling.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	if loaded, err = inside.Load(t.Context(), starling.RunPy, starling.ToolOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"own.db", "own.db-journal", "own.db.spare"} {
		files, err := inside.Files(t.Context(), starling.Folder{Path: folder, Writable: true})
		if err != nil {
			t.Fatal(err)
		}
		run, err := loaded.In(files).Call(t.Context(), `{"code":"open('`+name+`', 'w').write('x')"}`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := files.WriteBack(t.Context(), run.ID); err == nil || !strings.Contains(err.Error(), "is the place of the database") {
			t.Errorf("%s is written: %v", name, err)
		}
	}
	if _, err := files.WriteBack(t.Context(), again.ID); err == nil || !strings.Contains(err.Error(), "the run was given other files") {
		t.Errorf("files of before: %v", err)
	}
	if run, err = tool.Call(t.Context(), add); err != nil {
		t.Fatal(err)
	}
	moved := folder + ".moved"
	if err := errors.Join(os.Rename(folder, moved), os.Mkdir(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := files.WriteBack(t.Context(), run.ID); err == nil || !strings.Contains(err.Error(), "another folder is there now") {
		t.Errorf("the folder was moved: %v", err)
	}
	log.full = true
	if run, err := tool.Call(t.Context(), add); run != nil || err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("what a call leaves cannot be kept: %+v %v", run, err)
	}
	if verdict, err := db.Replay(t.Context(), run.ID); err != nil || !verdict.Identical() {
		t.Errorf("the replay: %+v %v", verdict, err)
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
