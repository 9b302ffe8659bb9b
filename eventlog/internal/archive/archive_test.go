package archive_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/archive"
	"github.com/starling-host/starling/eventlog/internal/memlog"
	"github.com/starling-host/starling/eventlog/internal/sqlitelog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/workspace"
)

// log is the interface that these tests need.
type log interface {
	archive.Log
	eventlog.Store
}

var module = []byte("\x00asm\x01\x00\x00\x00 of which nothing is executed")

// withModule is a whole run that names the module.
func withModule(id string, clock int64) []event.Event {
	c := logtest.Chain{RunID: id, Clock: clock}
	digest := canon.Sum(module)
	started := event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "<goal> \u2028 \"quoted\"", ToolSchemas: []event.ToolSchemaRef{
		{Name: "t", SchemaHash: make([]byte, 32), Sandbox: &event.Sandbox{Module: digest[:]}}}}
	return []event.Event{c.Next(started), c.Effect(300), c.Complete()}
}

// filled returns a log with five runs; one of them is open, and three name the module.
func filled(t testing.TB, l log) log {
	t.Helper()
	if _, err := l.PutModule(t.Context(), module); err != nil {
		t.Fatal(err)
	}
	open := logtest.Chain{RunID: "acme/open", Clock: 5e9}
	for _, evs := range [][]event.Event{
		withModule("acme/b", 2e9), withModule("acme/a", 1e9), logtest.Finished("other/c", 3), {open.Start("g"), open.Effect(1)}, withModule("d", 2e9),
	} {
		store(t, l, evs)
	}
	return l
}

func store(t testing.TB, l eventlog.EventLog, evs []event.Event) {
	t.Helper()
	for _, e := range evs {
		if err := l.Append(t.Context(), e.RunID, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Sync(t.Context(), evs[0].RunID); err != nil {
		t.Fatal(err)
	}
}

func file(t testing.TB) log {
	t.Helper()
	l, err := sqlitelog.Open(t.Context(), filepath.Join(t.TempDir(), "log.db"), sqlitelog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// write archives what o selects.
func write(t testing.TB, l log, o eventlog.PruneOptions) (string, archive.Report) {
	t.Helper()
	var b bytes.Buffer
	r, err := archive.Write(t.Context(), &b, l, o)
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), r
}

func TestWhatIsArchivedIsImportedByteForByte(t *testing.T) {
	everything := eventlog.PruneOptions{IncludeOpen: true}
	for name, empty := range map[string]func() log{"memory": func() log { return memlog.New() }, "file": func() log { return file(t) }} {
		t.Run(name, func(t *testing.T) {
			text, written := write(t, filled(t, empty()), everything)
			if want := (archive.Report{Runs: 5, Events: 18, Modules: 1}); written != want {
				t.Errorf("written: %+v, want %+v", written, want)
			}
			if checked, _, err := archive.Check(t.Context(), strings.NewReader(text)); err != nil || checked != written {
				t.Errorf("checked: %+v, %v", checked, err)
			}
			target := empty()
			imported, err := archive.Import(t.Context(), target, strings.NewReader(text))
			if err != nil || imported != written {
				t.Errorf("imported: %+v, %v", imported, err)
			}
			again, _ := write(t, target, everything)
			if diff := cmp.Diff(strings.Split(text, "\n"), strings.Split(again, "\n")); diff != "" {
				t.Error(diff)
			}
			known, err := archive.Import(t.Context(), target, strings.NewReader(text))
			if err != nil || known.Known != 5 {
				t.Errorf("once more: %+v, %v", known, err)
			}
		})
	}
}

// TestArchiveThenPrune selects twice with the same options.
func TestArchiveThenPrune(t *testing.T) {
	for what, o := range map[string]eventlog.PruneOptions{
		"all that have ended": {},
		"a namespace":         {Namespace: "acme"},
		"the oldest two":      {Limit: 2},
		"before":              {Before: time.Unix(2, 0)},
		"none":                {Status: eventlog.StatusCancelled},
	} {
		l := filled(t, file(t))
		before, _ := write(t, l, eventlog.PruneOptions{IncludeOpen: true})
		text, written := write(t, l, o)
		pruned, err := l.PruneRuns(t.Context(), o)
		if err != nil || pruned.Runs != written.Runs || pruned.Events != int64(written.Events) {
			t.Errorf("%s: archived %+v, pruned %+v, %v", what, written, pruned, err)
		}
		if _, err := archive.Import(t.Context(), l, strings.NewReader(text)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		after, _ := write(t, l, eventlog.PruneOptions{IncludeOpen: true})
		if len(after) != len(before) {
			t.Errorf("%s: the log is not what it was", what)
		}
	}
}

// TestEveryByteOfAnArchiveCounts changes each byte, and cuts the file off after each.
func TestEveryByteOfAnArchiveCounts(t *testing.T) {
	text, _ := write(t, filled(t, memlog.New()), eventlog.PruneOptions{Limit: 1})
	for at := range text {
		bad := []byte(text)
		bad[at] ^= 1 << (at % 7)
		for what, b := range map[string][]byte{"changed": bad, "cut off": bad[:at]} {
			_, _, err := archive.Check(t.Context(), bytes.NewReader(b))
			var where *archive.Error
			if !errors.As(err, &where) || !errors.Is(err, eventlog.ErrLogCorrupt) {
				t.Fatalf("byte %d %s: %v", at, what, err)
			}
			line := 1 + strings.Count(text[:at], "\n")
			if where.Line != line && (what == "cut off" || bad[at] != '\n' && text[at] != '\n' && where.Line < line) {
				t.Errorf("byte %d in line %d %s: %v", at, line, what, err)
			}
		}
	}
}

func TestArchivesThatAreWrong(t *testing.T) {
	text, _ := write(t, filled(t, memlog.New()), eventlog.PruneOptions{})
	lines := strings.SplitAfter(text, "\n")
	join := func(lines ...string) string { return strings.Join(lines, "") }
	for what, tc := range map[string]struct{ text, want string }{
		"nothing":                {"", "line 1: the last line of an archive is missing"},
		"an export of a run":     {join(lines[2:6]...), "line 1: the first line"},
		"no JSON":                {"archive\n", "line 1: no line of an archive"},
		"a line of another kind": {lines[0] + "{\"a\":1}\n", "line 2: a line that is neither"},
		"a newer format":         {"{\"archive\":\"starling-host/2\"}\n", "line 1: column 27"},
		"a module after its run": {join(lines[0], lines[2]), "line 2: run \"acme/a\" names module"},
		"a run twice":            {join(lines[:5]...) + lines[5] + lines[2], "is repeated"},
		"an event twice":         {join(lines[:4]...) + lines[3], "event 2"},
		"a module twice":         {join(lines[:2]...) + lines[1], "line 3: the module"},
		"the first line twice":   {lines[0] + lines[0], "line 2: the first line, and no other"},
		"a line after the last":  {text + lines[1], "there is data after the last line"},
		"a count that is wrong":  {strings.Replace(text, `"runs":4`, `"runs":5`, 1), "column"},
	} {
		if _, _, err := archive.Check(t.Context(), strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", what, err, tc.want)
		}
	}
}

func TestImportIntoALogThatHasSomeOfIt(t *testing.T) {
	text, _ := write(t, filled(t, memlog.New()), eventlog.PruneOptions{})
	l := file(t)
	half := withModule("acme/b", 2e9)[:2] // as an import that was interrupted leaves it
	store(t, l, half)
	r, err := archive.Import(t.Context(), l, strings.NewReader(text))
	if err != nil || r.Known != 0 || r.Runs != 4 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := eventlog.CheckRun(t.Context(), l, "acme/b", eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}

	l = file(t)
	store(t, l, withModule("d", 3e9))
	if _, err := archive.Import(t.Context(), l, strings.NewReader(text)); !errors.Is(err, archive.ErrOtherRun) {
		t.Errorf("another run of the same id: %v", err)
	}
	if runs, err := l.ListRuns(t.Context()); err != nil || len(runs) != 1 {
		t.Errorf("%d runs after an import that was refused, %v", len(runs), err)
	}
}

// undurable is a log whose barriers fail.
type undurable struct{ log }

var errUndurable = errors.New("the disk is broken")

func (undurable) Sync(context.Context, string) error { return errUndurable }

func TestAnImportReportsThatItMayNotBeDurable(t *testing.T) {
	text, _ := write(t, filled(t, memlog.New()), eventlog.PruneOptions{})
	if _, err := archive.Import(t.Context(), undurable{file(t)}, strings.NewReader(text)); !errors.Is(err, errUndurable) {
		t.Errorf("the import is reported as durable: %v", err)
	}
}

// TestImportReadsWhatArchivesHave takes runs with every kind of id that spec/event.md lets a reader
// accept from log to archive to log: such a run comes from another program.
func TestImportReadsWhatArchivesHave(t *testing.T) {
	ids := []string{"$(touch${IFS}PWNED)", "a b", "-rf", "a\x1b[2J", "a\nb", "a\u202eb", "Ä", " ", "\u2028", "'\"", strings.Repeat("é", 127), strings.Repeat("x", eventlog.MaxRunIDBytes), "a/b/c", "%s", "NULL"}
	source := memlog.New()
	for _, id := range ids {
		for _, ev := range logtest.Finished(id, 1) {
			source.Adopt(ev)
		}
	}
	text, _ := write(t, source, eventlog.PruneOptions{})
	for name, target := range map[string]eventlog.Store{"memory": memlog.New(), "file": file(t)} {
		if r, err := archive.Import(t.Context(), target, strings.NewReader(text)); err != nil || r.Runs != len(ids) || r.Known != 0 {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		if again, _ := write(t, target, eventlog.PruneOptions{}); again != text {
			t.Errorf("%s: the archive of what was imported differs", name)
		}
		if r, err := archive.Import(t.Context(), target, strings.NewReader(text)); err != nil || r.Known != len(ids) {
			t.Errorf("%s, where the runs are already: %+v, %v", name, r, err)
		}
		if err := target.Append(t.Context(), "a c", logtest.Finished("a c", 1)[0]); !errors.Is(err, eventlog.ErrInvalidAppend) {
			t.Errorf("%s: a new run begins under the id \"a c\": %v", name, err)
		}
	}
}

// TestImportOfTheBeginningOfARun imports into a log that has more of a run than the
// archive, which the head of the log does not cover.
func TestImportOfTheBeginningOfARun(t *testing.T) {
	for what, tc := range map[string]struct {
		clock int64
		want  error
	}{
		"of the same run": {clock: 2e9},
		"of another one":  {clock: 3e9, want: archive.ErrOtherRun},
	} {
		source := file(t)
		if _, err := source.PutModule(t.Context(), module); err != nil {
			t.Fatal(err)
		}
		store(t, source, withModule("d", tc.clock)[:2])
		text, _ := write(t, source, eventlog.PruneOptions{IncludeOpen: true})
		for backend, l := range map[string]log{"memory": memlog.New(), "file": file(t)} {
			store(t, l, withModule("d", 2e9))
			r, err := archive.Import(t.Context(), l, strings.NewReader(text))
			if !errors.Is(err, tc.want) || err == nil && r.Known != 1 {
				t.Errorf("the beginning %s, into %s: %+v, %v, want %v", what, backend, r, err, tc.want)
			}
		}
	}
}

func TestRunsThatCannotBeArchived(t *testing.T) {
	var b bytes.Buffer
	l := memlog.New()
	store(t, l, withModule("run-1", 1))
	if _, err := archive.Write(t.Context(), &b, l, eventlog.PruneOptions{}); !errors.Is(err, eventlog.ErrModuleNotFound) || !strings.Contains(fmt.Sprint(err), `"run-1"`) {
		t.Errorf("a run without its module: %v", err)
	}
	l = memlog.New()
	c := logtest.Chain{RunID: "run-2"}
	store(t, l, []event.Event{c.Start("g"), c.Next(event.RunCompleted{FinalText: "null", MerkleRoot: make([]byte, 32)})})
	if _, err := archive.Write(t.Context(), &b, l, eventlog.PruneOptions{}); !errors.Is(err, eventlog.ErrLogCorrupt) {
		t.Errorf("a run that is not valid: %v", err)
	}
	if _, err := archive.Write(t.Context(), &b, l, eventlog.PruneOptions{Status: "?"}); !errors.Is(err, eventlog.ErrInvalidPrune) {
		t.Errorf("options that select nothing: %v", err)
	}
}

// meanwhile is a log that does something while its runs are listed.
type meanwhile struct {
	log
	do func()
}

func (m meanwhile) ListRuns(ctx context.Context) ([]eventlog.RunSummary, error) {
	m.do()
	return m.log.ListRuns(ctx)
}

// TestAnArchiveReplacesNone writes a file whose name another process takes in the meantime.
func TestAnArchiveReplacesNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.ndjson.zst")
	l := meanwhile{filled(t, memlog.New()), func() { os.WriteFile(path, []byte("of another process"), 0o600) }}
	_, _, err := archive.WriteFile(t.Context(), l, path, eventlog.PruneOptions{})
	content, _ := os.ReadFile(path)
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if !errors.Is(err, fs.ErrExist) || string(content) != "of another process" || len(files) != 1 {
		t.Errorf("%v, %q, %q", err, content, files)
	}
}

// archived returns an archive of these events, whatever they say.
func archived(t *testing.T, events []event.Event) string {
	t.Helper()
	text := `{"archive":"` + archive.Format + "\"}\n"
	for _, e := range events {
		line, err := event.ToJSON(e)
		if err != nil {
			t.Fatal(err)
		}
		text += string(line) + "\n"
	}
	return text + fmt.Sprintf(`{"events":%d,"hash":"%v","modules":0,"runs":1}`, len(events), canon.Sum([]byte(text))) + "\n"
}

// TestArchivesAreStrict writes, checks and imports runs that only the strict rules refuse.
func TestArchivesAreStrict(t *testing.T) {
	if _, _, err := archive.Check(t.Context(), strings.NewReader(archived(t, logtest.Finished("run", 1)))); err != nil {
		t.Fatal(err)
	}
	for name, events := range logtest.Lenient("run") {
		l := memlog.New()
		for _, e := range events {
			l.Adopt(e)
		}
		var b bytes.Buffer
		if _, err := archive.Write(t.Context(), &b, l, eventlog.PruneOptions{}); !errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("%s: written: %v", name, err)
		}
		text := archived(t, events)
		if _, _, err := archive.Check(t.Context(), strings.NewReader(text)); !errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("%s: checked: %v", name, err)
		}
		if _, err := archive.Import(t.Context(), memlog.New(), strings.NewReader(text)); !errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("%s: imported: %v", name, err)
		}
	}
}

// endless is a line that does not end; its reader gives up after the first part of it.
type endless struct{ give func(error) }

var errGaveUp = errors.New("gave up")

func (e endless) Read(p []byte) (int, error) {
	e.give(errGaveUp)
	return copy(p, bytes.Repeat([]byte("x"), len(p))), nil
}

func TestACheckEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, _, err := archive.Check(ctx, endless{cancel}); !errors.Is(err, errGaveUp) {
		t.Error(err)
	}
}

// withFiles returns a log with two runs that share files, and the lines of their archive.
func withFiles(t testing.TB) (log, []string) {
	t.Helper()
	l := file(t)
	given, from := logtest.Tree(map[string]string{"data/a": "a", "data/b": "b", "empty": ""})
	left, to := logtest.Tree(map[string]string{"data/a": "a", "data/b": "b", "made": "by the call"})
	if err := l.PutContents(t.Context(), "", append(given, left...)); err != nil {
		t.Fatal(err)
	}
	store(t, l, logtest.WithFiles("first", from, to))
	store(t, l, logtest.WithFiles("second", to, to))
	text, _ := write(t, l, eventlog.PruneOptions{})
	return l, strings.SplitAfter(text, "\n")
}

// TestFilesAreArchived imports the files with their users: a removal of what nothing uses leaves them, and a
// removal of the runs takes them away.
func TestFilesAreArchived(t *testing.T) {
	_, lines := withFiles(t)
	text := strings.Join(lines, "")
	target := file(t)
	for range 2 {
		report, err := archive.Import(t.Context(), target, strings.NewReader(text))
		if want := (archive.Report{Runs: 2, Events: 8, Files: 7}); err != nil || report.Files != want.Files || report.Events != want.Events {
			t.Fatalf("%+v, %v", report, err)
		}
	}
	db := target.(eventlog.Database)
	if removed, err := db.RemoveUnusedModules(t.Context()); err != nil || removed.Modules != 0 {
		t.Errorf("%+v are removed, %v", removed, err)
	}
	if again, _ := write(t, target, eventlog.PruneOptions{}); again != text {
		t.Error(cmp.Diff(lines, strings.SplitAfter(again, "\n")))
	}
	if _, err := target.PruneRuns(t.Context(), eventlog.PruneOptions{}); err != nil {
		t.Fatal(err)
	}
	if removed, err := db.RemoveUnusedModules(t.Context()); err != nil || removed.Modules != 7 {
		t.Errorf("%+v are removed, %v", removed, err)
	}
}

func TestFilesOfArchivesThatAreWrong(t *testing.T) {
	_, lines := withFiles(t)
	kinds := make([]string, len(lines))
	for i, line := range lines[:len(lines)-1] {
		kinds[i], _, _ = strings.Cut(line[2:], `"`)
	}
	want := []string{"archive", "envelope", "file", "file", "folder", "file", "folder", "envelope", "file", "folder", "envelope", "envelope",
		"envelope", "envelope", "envelope", "envelope", "events", ""}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Fatal(diff)
	}
	without := func(i int) string { return strings.Join(append(lines[:i:i], lines[i+1:]...), "") }
	larger := func(text string) string { // the bytes of a file, and not what its folder lists
		c := eventlog.Content{Bytes: []byte(text)}
		return fmt.Sprintf("{\"file\":\"%v\",\"bytes\":\"%s\"}\n", canon.Sum(c.Bytes), base64.StdEncoding.EncodeToString(c.Bytes))
	}
	for what, tc := range map[string]struct{ text, want string }{
		"a file less":                  {without(2), "line 4: the folder"},
		"a folder less":                {without(4), "line 6: the folder"},
		"a root less":                  {without(6), `line 7: run "first" names files with the root`},
		"a file twice":                 {strings.Join(lines[:3], "") + lines[2], "line 4: the content"},
		"a folder as a file":           {strings.Join(lines[:4], "") + strings.Replace(lines[4], "folder", "file", 1) + strings.Join(lines[5:], ""), "line 7: the folder"},
		"a file as a folder":           {strings.Join(lines[:2], "") + strings.Replace(lines[2], "file", "folder", 1), "line 3: workspace: "},
		"a file with another digest":   {strings.Join(lines[:2], "") + strings.Replace(lines[2], `"bytes":"`, `"bytes":"AAAA`, 1), "line 3: column"},
		"a file in another spelling":   {strings.Join(lines[:2], "") + strings.Replace(lines[2], `,"bytes"`, `, "bytes"`, 1), "line 3: column"},
		"a count that is wrong":        {strings.Replace(strings.Join(lines, ""), `"files":7`, `"files":8`, 1), "column"},
		"files that no event uses":     {lines[0] + larger("unused"), "line 3: the last line of an archive is missing"},
		"a file that has another size": {strings.Join(lines[:4], "") + folderOf(t, canon.Sum([]byte("a")), 2), "line 5: the folder"},
	} {
		if _, _, err := archive.Check(t.Context(), strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) || len(err.Error()) > 400 {
			t.Errorf("%s: %v, want %s", what, err, tc.want)
		}
	}
}

// folderOf is the line of a folder with one file of a size.
func folderOf(t *testing.T, digest canon.Hash, size uint64) string {
	list := workspace.Encode([]workspace.Entry{{Name: "a", Kind: workspace.File, Size: size, Digest: digest}})
	return fmt.Sprintf("{\"folder\":\"%v\",\"bytes\":\"%s\"}\n", canon.Sum(list), base64.StdEncoding.EncodeToString(list))
}

// TestFilesThatAreMissingAreNotArchived names the file.
func TestFilesThatAreMissingAreNotArchived(t *testing.T) {
	l, _ := withFiles(t)
	b := canon.Sum([]byte("b"))
	err := l.(eventlog.Database).Transact(t.Context(), func(tx eventlog.Tx) error {
		_, err := tx.Exec("DELETE FROM module WHERE digest = $1", b[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = archive.Write(t.Context(), &bytes.Buffer{}, l, eventlog.PruneOptions{})
	if !errors.Is(err, eventlog.ErrModuleNotFound) || !strings.Contains(err.Error(), `run "first": its file "/data/b"`) {
		t.Error(err)
	}
}
