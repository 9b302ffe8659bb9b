package main

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/serve/queue"
)

// hostileText is text that does harm where it is printed, or pasted: controls of both
// sets, characters that reorder, hide or break lines, a line of this program's, a command
// and a flag. Bytes that are not UTF-8 can stand beside it where text need not be.
const (
	hostileText = "$(touch${IFS}PWNED)`id`\x1b[2J\x1b]0;t\a\b\x00\r\nerror: forged \u202e\u2066\u2028\u0085\u009b31m\u200b\ufeff\U000e0041\x7f\t'\"\\end"
	hostileName = "$(touch${IFS}PWNED)\x1b[2J\a\r\nerror: forged \u202e\u009b31m\u2028\xff" // of a file
)

// The same, longer than a line can show, and with bytes that are not UTF-8.
var (
	longText     = hostileText + strings.Repeat(" more\u009b31m", 1000)
	hostileBytes = longText + "\x9b31m\xff\xc3"
)

// TestCommandsEscapeWhatTerminalsObey runs every command of the tree, with every
// kind of argument and with each of its flags, over files in which every text is hostile,
// on a terminal. It prints no control character but line breaks, no character that hides
// or reorders others, and no line that another program's text made up. A command that is
// new is in the tree; what its arguments stand for must be in hostileFiles.
func TestCommandsEscapeWhatTerminalsObey(t *testing.T) {
	skipShort(t)
	files := newHostileFiles(t)
	here := filepath.Join(t.TempDir(), hostileName)
	copyFiles(t, files.dir, here)
	t.Chdir(here) // where starling.db is, and examples/agent is not
	seen := 0
	eachCommand((&app{stdout: terminal.New(io.Discard), stderr: terminal.New(io.Discard)}).root(), func(cmd *cobra.Command) {
		for _, args := range files.callsOf(t, cmd) {
			seen++
			t.Run(strings.Join(args, " "), func(t *testing.T) {
				t.Parallel()
				// Each call has files of its own, so that the calls do not depend on each other.
				dir := filepath.Join(t.TempDir(), hostileName)
				copyFiles(t, files.dir, dir)
				for i, arg := range args {
					args[i] = strings.ReplaceAll(arg, "DIR", dir)
				}
				stdout, stderr := onTerminals(t, args, slices.Contains(servers, cmd.Name()))
				if slices.Contains(args, "--licenses") {
					stdout = strings.ReplaceAll(stdout, "\t", " ") // as the licences, which the program brings, are written
				}
				checkPrinted(t, "standard output", stdout, slices.Contains(textsOfOthers, cmd.CommandPath()))
				checkPrinted(t, "standard error", stderr, false)
				entries, err := os.ReadDir(dir)
				if err != nil {
					t.Error(err)
				}
				for _, e := range entries {
					if name := e.Name(); strings.HasSuffix(name, "-wal") || strings.HasSuffix(name, "-shm") || strings.HasSuffix(name, "-journal") || strings.HasSuffix(name, ".part") {
						t.Errorf("it leaves %q", name)
					}
				}
			})
		}
	})
	if seen < 200 {
		t.Errorf("only %d calls were made", seen)
	}
	if _, err := os.Stat("PWNED"); err == nil {
		t.Error("a command was executed")
	}
}

// copyFiles is os.CopyFS for names that are not UTF-8.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err == nil {
		err = os.Mkdir(to, 0o700)
	}
	for _, e := range entries {
		var content []byte
		if err == nil {
			content, err = os.ReadFile(filepath.Join(from, e.Name()))
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, e.Name()), content, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// textsOfOthers are the commands whose result is a text of somebody else's, line by line.
var textsOfOthers = []string{"starling-host agent run", "starling-host agent resume", "starling-host tenant policy"}

// onTerminals runs the program with two terminals, of a size in columns and rows if one is
// given, until it has printed something if it
// goes on until it is stopped.
func onTerminals(t *testing.T, args []string, serves bool, size ...uint16) (stdout, stderr string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	open := func(stop func()) (*os.File, <-chan string) {
		keyboard, terminal := pseudoTerminal(t)
		if _, err := term.MakeRaw(int(terminal.Fd())); err != nil {
			t.Fatal(err)
		}
		if len(size) > 0 {
			if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: size[0], Row: size[1]}); err != nil {
				t.Fatal(err)
			}
		}
		all := make(chan string, 1)
		go func() {
			var text []byte
			buffer := make([]byte, 4096)
			for {
				n, err := keyboard.Read(buffer)
				text = append(text, buffer[:n]...)
				if n > 0 && serves {
					stop()
				}
				if err != nil { // the terminal was closed
					all <- string(text)
					return
				}
			}
		}()
		return terminal, all
	}
	out, printed := open(stop)
	log, said := open(func() {})
	a := &app{stdin: strings.NewReader(askEverything()), stdout: terminal.New(out), stderr: terminal.New(log)}
	a.execute(ctx, args)
	out.Close()
	log.Close()
	return <-printed, <-said
}

// checkPrinted finds what a terminal obeys, or takes for this program's words.
func checkPrinted(t *testing.T, where, text string, linesOfOthers bool) {
	t.Helper()
	text = progress.ReplaceAllString(text, "")
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		for i, r := range line {
			if !strconv.IsPrint(r) || r == utf8.RuneError && line[i] == 0xff {
				t.Errorf("%s has %U: %.300q", where, r, line)
				break
			}
		}
		if !linesOfOthers && strings.HasPrefix(line, "error: forged") {
			t.Errorf("%s has a line that is not ours: %.300q", where, line)
		}
	}
}

// progress is a bar, and its removal, a style, or the clearing of the screen, of this program's.
// What is hostile has others.
var progress = regexp.MustCompile(`\rreplay +[0-9]+% [^\r\n]*|\r(building|compiling) [ -~]*|\r *\r|\x1b\[(0|1|2|31|32|33|36)m|\x1b\[H\x1b\[2J`)

// hostileFiles are what commands are called with.
type hostileFiles struct {
	dir    string
	values map[string][]string // of arguments and flags, by the word in the help text; DIR is the folder
}

// callsOf returns calls of a command: with each value of each argument, and with each flag.
func (h *hostileFiles) callsOf(t *testing.T, cmd *cobra.Command) [][]string {
	path := strings.Fields(cmd.CommandPath())[1:]
	calls := [][]string{append(slices.Clone(path), "--help"), append(slices.Clone(path), "--"+hostileName), append(slices.Clone(path), hostileName, hostileName)}
	if !cmd.Runnable() || cmd.HasSubCommands() && len(strings.Fields(cmd.Use)) == 1 {
		return calls
	}
	choices := [][]string{}
	for _, word := range strings.Fields(cmd.Use)[1:] {
		choices = append(choices, h.of(t, cmd, strings.Trim(word, "[]")))
	}
	call := func(flags []string, values ...string) {
		calls = append(calls, slices.Concat(path, h.values[cmd.CommandPath()], flags, values))
	}
	first := make([]string, len(choices))
	for i := range choices {
		first[i] = choices[i][0]
	}
	asJSON := []string{}
	if cmd.Flags().Lookup("output") != nil {
		asJSON = []string{"-o", "json"}
	}
	for i := range choices {
		for _, value := range choices[i] {
			values := slices.Clone(first)
			values[i] = value
			call(nil, values...)
			if len(asJSON) > 0 {
				call(asJSON, values...)
			}
		}
		call(nil, first[:i]...)
	}
	call(nil, first...)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		word, _ := pflag.UnquoteUsage(f)
		if f.Name == "help" {
			return
		} else if word == "" {
			call([]string{"--" + f.Name}, first...)
			return
		}
		values := h.of(t, cmd, word)
		if os.Getenv("STARLING_NIGHTLY") == "" {
			values = values[len(values)-1:]
		}
		for _, value := range values {
			call([]string{"--" + f.Name + "=" + value}, first...)
		}
	})
	return calls
}

// of returns the values of a word in the help text.
func (h *hostileFiles) of(t *testing.T, cmd *cobra.Command, word string) []string {
	if strings.Contains(word, "|") && strings.ToLower(word) == word {
		return strings.Split(word, "|")
	}
	if len(h.values[word]) == 0 {
		t.Errorf("%s: what is %s? It needs a line in newHostileFiles", cmd.CommandPath(), word)
		return []string{"x"}
	}
	return h.values[word]
}

func newHostileFiles(t *testing.T) *hostileFiles {
	h := &hostileFiles{dir: filepath.Join(t.TempDir(), hostileName), values: map[string][]string{
		"DB":                          {"DIR/starling.db", "DIR/seed.db", "DIR/garbage", "DIR/there is none\x1b[2J\nerror: forged"},
		"RUN":                         {"01BROKEN", "01WHOLE", "01OPEN", "@last", hostileText},
		"FILE":                        {"DIR/agent.yaml", "DIR/policy.yaml", "DIR/archive", "DIR/garbage", "DIR/new\x1b[2J"},
		"PATH":                        {"DIR/starling.db", "DIR/new\x1b[2J.db"},
		"TOOL":                        {"DIR/" + hostileName + ".wasm", "DIR/fails.wasm", "DIR/garbage", hostileText},
		"OLD":                         {"DIR/" + hostileName + ".wasm", "DIR/garbage", hostileText},
		"NEW":                         {"DIR/" + hostileName + ".wasm", "DIR/garbage", hostileText},
		"CASE...":                     {hostileText},
		"QUERY...":                    {"state:failed", "reason:forged", hostileText},
		"LANGUAGE":                    {"python", hostileText},
		"KEYFILE":                     {"DIR/seal.key", "DIR/garbage", hostileText},
		"ID":                          {"acme", hostileText},
		"TENANT":                      {"acme", hostileText},
		"NAME":                        {"TOKEN", hostileText},
		"VARIABLE":                    {"TOKEN", hostileText},
		"NAME: HEADER: VALUE":         {"n: H: v", hostileText},
		"NAME: VALUE":                 {"n: v", hostileText},
		"NAME: TOOL,!TOOL,TOOL=OTHER": {"n: a,!b,c=d", hostileText},
		"NAME: shared, strict, timeout=TIME, arguments=SIZE": {"n: shared", "n: " + hostileText},
		"script:FILE":           {"script:DIR/turns.yaml", hostileText},
		"starling-host serve":   {"--dev", "--listen=127.0.0.1:0"},
		"starling-host inspect": {"--listen=127.0.0.1:0"},
		"starling-host tenant":  nil,
	}}
	for word, valid := range map[string]string{
		"N": "2", "SIZE": "1MiB", "AGE": "1h", "TIME": "2030-01-01T00:00:00Z", "MONTH": "2026-01", "SINCE": "30d", "DURATION": "1m", "duration": "1m", "SEQ": "2",
		"CALL[/FUEL]": "2/1k", "METHOD": "GET", "HOST": "h", "HOST[:PORT]": "h:1", "HOST:PORT": "127.0.0.1:0", "ADDRESS": "127.0.0.1:0", "ROLE": "r", "URL": "http://h/", "MESSAGE": "go on",
		"GOAL": "go", "INPUT": "{}", "KEY-ID": "k", "MODULE": "fails", "TEXT": "text", "FILE|DIGEST": "DIR/fails.wasm",
		"SERVER": "false", "[NAME=]COMMAND|URL": "name=false", "FILE|FOLDER": "DIR/fails.wasm", "FOLDER": "DIR", "FOLDER[:AT][:rw]": "DIR", "ASSISTANT": "codex", "WORD": "x",
		"RUN...": "@last", "VKEY": "DIR/seal.vkey", "N|default|none": "3", "SIZE|default|none": "1MiB",
	} {
		h.values[word] = []string{valid, hostileText}
	}
	if err := os.Mkdir(h.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	h.writeTexts(t)
	h.writeLogs(t)
	return h
}

// writeLogs makes a database of the Starling runtime with hostile runs, and one of this
// program from it, which has hostile tenants as well.
func (h *hostileFiles) writeLogs(t *testing.T) {
	t.Helper()
	seed, ours := filepath.Join(h.dir, "seed.db"), filepath.Join(h.dir, "starling.db")
	runs := slices.Concat(brokenRun("01BROKEN"+hostileText), wholeRun("01WHOLE"+hostileText), wholeRun("01OPEN" + hostileText)[:2])
	writeSeedLog(t, seed, runs)
	content, err := os.ReadFile(seed)
	if err == nil {
		err = os.WriteFile(ours, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(h.dir, "starling.key")
	for _, args := range [][]string{
		{"seal", "keygen", filepath.Join(h.dir, "seal.key")}, {"migrate", ours}, {"tenant", "keygen", key},
		{"tenant", "create", "acme", "--db", ours, "--key-file", key},
		{"secret", "set", "acme", "TOKEN", "--host", "h", "--db", ours, "--key-file", key},
		{"tenant", "policy", "acme", filepath.Join(h.dir, "policy.yaml"), "--db", ours},
		{"seal", ours, "--key", filepath.Join(h.dir, "seal.key")},
	} {
		var out, log strings.Builder
		want := exitOK
		if args[0] == "seal" && args[1] == ours {
			want = exitInvalid // it leaves out the broken run
		}
		if code := Main(args, strings.NewReader("0123456789"), &out, &log); code != want {
			t.Fatalf("%q: %s", args, log.String())
		}
		if args[0] == "seal" && args[1] == "keygen" {
			if err := os.WriteFile(filepath.Join(h.dir, "seal.vkey"), []byte(out.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	log, err := store.OpenFile(t.Context(), ours, store.FileOptions{})
	if err == nil {
		_, err = queue.Open(t.Context(), log, queue.Config{})
		log.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	insert(t, ours, []string{
		`INSERT INTO queue_job (run_id, tenant, class, failure, owner, state, due, number, rank, max_attempts, attempt, deaths, snoozes, epoch, cancelled, enqueued, started, payload)
			SELECT '01OPEN' || ?, ?, ?, ?, ?, 1, 9e18, 1, 0, 5, 1, 0, 0, 1, 0, 1, 0, ''`,
		`INSERT INTO queue_job (run_id, tenant, number, state, rank, max_attempts, attempt, epoch, enqueued, started, owner, class, failure, payload)
			SELECT run_id || 'running' || ?, tenant, 2, 2, rank, 5, 1, 1, 1, 1, owner, class, failure, '' FROM queue_job`,
		"INSERT INTO queue_host (owner, host, label, version, until, seen) VALUES (?, ?, ?, ?, 1, 1)",
		"INSERT INTO tenant SELECT ?, ?, created, suspended, erased, weight, limits, revision FROM tenant",
		"UPDATE tenant SET name = ?", "UPDATE tenant_api_key SET label = ?",
		"INSERT INTO tenant_secret SELECT tenant, ?, ?, place, encrypted, updated FROM tenant_secret",
		"UPDATE tenant_policy SET text = text || ?",
		"INSERT INTO tenant_module VALUES ('acme', ?, zeroblob(32), 1, 0, 1)",
	})
}

// insert executes statements, with hostile text for their parameters.
func insert(t *testing.T, path string, statements []string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range statements {
		args := make([]any, strings.Count(statement, "?"))
		for i := range args {
			args[i] = hostileText
		}
		if _, err := db.Exec(statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// writeSeedLog writes runs into a new file as the Starling runtime does, whatever their ids.
func writeSeedLog(t *testing.T, path string, events []event.Event) {
	t.Helper()
	insert(t, path, []string{
		"CREATE TABLE eventlog_events (run_id TEXT NOT NULL, seq INTEGER NOT NULL, prev_hash BLOB, ts INTEGER NOT NULL, kind INTEGER NOT NULL, payload BLOB NOT NULL, PRIMARY KEY (run_id, seq))",
		"CREATE TABLE eventlog_schema_migrations (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL)",
		"INSERT INTO eventlog_schema_migrations VALUES (1, 0), (2, 0)",
	})
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, ev := range events {
		if _, err := db.Exec("INSERT INTO eventlog_events VALUES (?, ?, ?, ?, ?, ?)", ev.RunID, ev.Seq, ev.PrevHash, ev.Timestamp, ev.Kind, []byte(ev.Payload)); err != nil {
			t.Fatal(err)
		}
	}
}

// writeTexts writes the files in which people and programs say something.
func (h *hostileFiles) writeTexts(t *testing.T) {
	t.Helper()
	quoted := strconv.QuoteToASCII(strings.ReplaceAll(hostileText, "\x00", ""))
	var archived strings.Builder
	for _, ev := range wholeRun("01ARCHIVED" + hostileText) {
		line, err := event.ToJSON(ev)
		if err != nil {
			t.Fatal(err)
		}
		archived.Write(append(line, '\n'))
	}
	for name, text := range map[string]string{
		"garbage":             hostileBytes,
		"archive":             archived.String(),
		"agent.yaml":          "provider: {script: turns.yaml}\nsystem: " + quoted + "\ntools: [" + "fails.wasm" + "]\n",
		"turns.yaml":          "- tool_calls: [{name: fails, args: {" + quoted + ": " + quoted + "}}]\n- text: " + quoted + "\n",
		"policy.yaml":         "version: \"1.0\"\npermissions:\n  network:\n    allow: [{host: h}]\n",
		hostileName + ".wasm": string(commandModule(`"\u001b[2J\u202e"`, 0)),
		"fails.wasm":          string(commandModule(hostileBytes, 1)),
	} {
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// commandModule is a command that writes hostile text to standard error and a result to
// standard output, and ends with a code.
func commandModule(result string, code int32) []byte {
	write := func(asm *wasm.Asm, fd, at int32) {
		asm.I32(fd).I32(at).I32(1).I32(0).Index(wasm.OpCall, 0).Op(wasm.OpDrop)
	}
	asm := new(wasm.Asm)
	write(asm, 2, 16)
	write(asm, 1, 24)
	if code != 0 {
		asm.I32(code).Index(wasm.OpCall, 1)
	}
	const texts = 64
	vector := func(at, n int) string {
		return string(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(at)), uint32(n)))
	}
	return (&wasmtest.Module{
		Imports: []wasmtest.Import{{Module: abi.WASIModule, Name: "fd_write", Type: wasmtest.Type("iiii:i")}, {Module: abi.WASIModule, Name: "proc_exit", Type: wasmtest.Type("i:")}},
		Memory:  wasmtest.Pages(1),
		Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Funcs:   []wasmtest.Func{{Export: "_start", Type: wasmtest.Type(":"), Code: asm}},
		Data: []wasmtest.Data{
			{Offset: 16, Bytes: vector(texts, len(hostileBytes)) + vector(texts+len(hostileBytes), len(result))},
			{Offset: texts, Bytes: hostileBytes + result},
		},
		Customs: []wasmtest.Custom{{Name: hostileText, Body: hostileText}},
	}).Bytes()
}

// brokenRun has an event of every kind, with each field filled, in an order that no run
// has, and of effects one of every name.
func brokenRun(id string) []event.Event {
	c := logtest.Chain{RunID: id, Clock: 1_700_000_000_000_000_000}
	events := []event.Event{c.Next(filled[event.RunStarted]())}
	for _, p := range []event.Payload{
		filled[event.UserMessageAppended](), filled[event.TurnStarted](), filled[event.ReasoningEmitted](), filled[event.AssistantMessageCompleted](),
		filled[event.ToolCallScheduled](), filled[event.ToolCallCompleted](), filled[event.ToolCallFailed](), filled[event.SideEffectRecorded](),
		filled[event.BudgetExceeded](), filled[event.RunResumed](), filled[event.ContextTruncated](), filled[event.TurnFailed](),
		effect(event.EffectNow, longText), effect(event.EffectRandom, longText), effect(event.EffectSeed, longText),
		effect(event.EffectIntent, filled[event.Intent]()), effect(event.EffectModel, filled[event.ModelFailure]()),
		effect(event.EffectPolicy, event.Verdicts{filled[event.Verdict]()}), effect("GET http://h/\x1b[2J", filled[event.Exchange]()),
		effect("GET http://h/\x1b[2J", event.Exchange{Response: []byte(hostileBytes)}), effect("named", event.Exchange{Status: -1, Text: longText}),
		effect("GET http://h/\x1b[2J", longText), filled[event.RunCancelled](), filled[event.RunFailed](), filled[event.RunCompleted](),
	} {
		events = append(events, c.Next(p))
	}
	return events
}

// effect is one whose request and value are given; the request is one over HTTP.
func effect(name string, value any) event.SideEffectRecorded {
	p := event.SideEffectRecorded{Name: name, Value: encoded(value), CallID: longText}
	if name == "named" || strings.HasPrefix(name, "GET") {
		p.Request = []byte("GET http://h/\x1b[2J HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	return p
}

// wholeRun is valid.
func wholeRun(id string) []event.Event {
	c := logtest.Chain{RunID: id, Clock: 1_700_000_000_000_000_000}
	started := filled[event.RunStarted]()
	params, prompt := canon.Sum(started.Params), canon.Sum([]byte(started.SystemPrompt))
	started.ParamsHash, started.SystemPromptHash = params[:], prompt[:]
	events := []event.Event{
		c.Next(started), c.Next(filled[event.TurnStarted]()), c.Next(filled[event.AssistantMessageCompleted]()),
		c.Next(event.ToolCallScheduled{CallID: longText, ToolName: longText, Args: encoded(longText), Attempt: 1}),
	}
	tree := canon.Tree{}
	events = append(events, c.Next(effect("named", event.Exchange{Status: -1, Text: longText})),
		c.Next(event.ToolCallFailed{CallID: longText, Error: longText, ErrorType: longText, Attempt: 1}))
	for _, ev := range events {
		tree.Add(ev.Hash())
	}
	root := tree.Root()
	return append(events, c.Next(event.RunFailed{Error: longText, ErrorType: longText, MerkleRoot: root[:]}))
}

// filled returns a value in which every field has something in it, and every text is
// hostile.
func filled[T any]() (v T) {
	fill(reflect.ValueOf(&v).Elem(), "")
	return v
}

func fill(v reflect.Value, name string) {
	switch {
	case v.Type() == reflect.TypeFor[canon.Raw]():
		v.SetBytes(encoded(map[string]any{longText: []any{longText, []byte(hostileBytes)}}))
	case v.Type() == reflect.TypeFor[[]byte]() && (strings.HasSuffix(name, "Hash") || strings.HasSuffix(name, "Root") || name == "Module"):
		v.SetBytes(make([]byte, len(canon.Hash{})))
	case v.Type() == reflect.TypeFor[[]byte]():
		v.SetBytes([]byte(hostileBytes))
	case v.Kind() == reflect.String:
		v.SetString(longText)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), "")
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), "")
	case v.Kind() == reflect.Map:
		v.Set(reflect.ValueOf(map[string]canon.Raw{longText: encoded(longText)}).Convert(v.Type()))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), v.Type().Field(i).Name)
		}
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(1)
	case v.CanUint():
		v.SetUint(1)
	case v.CanFloat():
		v.SetFloat(1)
	}
}

func encoded(v any) canon.Raw {
	raw, err := canon.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// askEverything is what an assistant sends to see all of a log.
func askEverything() string {
	var b strings.Builder
	b.WriteString(searchRuns)
	for _, id := range []string{"01BROKEN" + hostileText, "01WHOLE" + hostileText, hostileText} {
		for name, args := range map[string]map[string]any{
			"list_runs": {"query": id[:4]}, "get_run": {"run_id": id}, "get_event": {"run_id": id, "seq": 2}, "summarize_run": {"run_id": id},
			"validate_run": {"run_id": id}, "diff_runs": {"a": id, "b": "01OPEN" + hostileText}, "search_runs": {"query": "forged"}, hostileText: {hostileText: id},
		} {
			message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id + name, "method": "tools/call", "params": map[string]any{"name": name, "arguments": args}})
			if err != nil {
				panic(err)
			}
			b.Write(append(message, '\n'))
		}
	}
	return b.String()
}

// What a command writes to a name goes into a new file, or into one that was the command's
// own before. A link of that name leads to a file that somebody else has chosen.
func TestNoCommandWritesThroughALink(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	victims := filepath.Join(t.TempDir(), "missing")
	wasm := filepath.Join(dir, "hello.wasm")
	if err := os.WriteFile(wasm, commandModule(`"hello"`, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (exit int, said string) {
		var log strings.Builder
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		a := &app{stdin: strings.NewReader(""), stdout: terminal.New(io.Discard), stderr: terminal.New(&log)}
		return a.execute(ctx, args), log.String()
	}
	if code, said := run("run", wasm); code != exitOK {
		t.Fatal(said)
	}
	if err := os.Symlink(victims, "link"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"run", wasm, "--db", "link"}, {"agent", "run", "link", "go", "--db", "link"}, {"replay", "starling.db", "@last", "--profile", "link"},
		{"archive", "starling.db", "link"}, {"backup", "starling.db", "link"}, {"fork", "starling.db", "@last", "0", "link"}, {"import", "link", "starling.db"},
		{"migrate", "link"}, {"tenant", "keygen", "link"}, {"tenant", "create", "a", "--db", "link"}, {"serve", "--dev", "--listen", "127.0.0.1:0", "--db", "link"},
		{"prune", "link", "--confirm"},
	} {
		if code, said := run(args...); code == exitOK {
			t.Errorf("%q went well: %s", args, said)
		}
		if _, err := os.Lstat(victims); err == nil {
			t.Errorf("%q wrote through a link", args)
			os.Remove(victims)
		}
	}
}
