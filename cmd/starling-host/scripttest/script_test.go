package scripttest

import (
	"bytes"
	"compress/bzip2"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

func TestMain(m *testing.M) { Run(m) }

// testTools are the modules that scripts find in $TOOLS as NAME.wasm, built
// from testdata/tools.
var testTools = []string{"probe", "draw", "draw-next", "liar"}

// TestScripts runs testdata/script. The scripts are the specification of the
// command line; these commands are there beside those of testscript:
//
//	exits CODE COMMAND   run a program and check its exit code
//	module NAME FILE     write one of handmadeModules, or imports:MODULE|NAME
//	server start|stop    an HTTP server, its URL in $URL, its HOST:PORT in $HOST
//	server await PATH    wait until the server has been asked for PATH
//	host start|ask|stop  a host that serves, see hostCommand
//	registry start|stop  an OCI registry, its HOST:PORT in $REGISTRY
//	flip DB SEQ COLUMN   change one byte of that event of the oldest run
//	recorded FOLDER      unpack what an earlier version recorded, see testdata/recorded
//	restore DSN FILE     run a dump of a PostgreSQL database
//	sql DB STATEMENT     change a database as another program does, or an attacker
func TestScripts(t *testing.T) {
	runScripts(t, "../testdata/script", func(*testscript.Env) {})
}

// TestPostgresScripts runs testdata/postgres, where $DSN is an empty database on a
// server, and $APP, $KEEPER and $READER the same for roles that own nothing of it.
func TestPostgresScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	server := pgtest.Start(t) // roles belong to a server
	super, err := pgx.Connect(t.Context(), server.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer super.Close(t.Context())
	const roles = "CREATE ROLE owner LOGIN SUPERUSER; CREATE ROLE app LOGIN; CREATE ROLE keeper LOGIN; CREATE ROLE reader LOGIN"
	if _, err := super.Exec(t.Context(), roles); err != nil {
		t.Fatal(err)
	}
	runScripts(t, "../testdata/postgres", func(e *testscript.Env) {
		database := server.Database(t)
		for name, role := range map[string]string{"DSN": "owner", "APP": "app", "KEEPER": "keeper", "READER": "reader"} {
			e.Setenv(name, pgtest.As(database, role))
		}
	})
}

func runScripts(t *testing.T, dir string, setup func(*testscript.Env)) {
	env := scriptEnvironment(t)
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			e.Vars = append(e.Vars, env...)
			e.Values[serverKey] = new(*server)
			e.Values[servedKey] = new(served)
			e.Values[registryKey] = new(*httptest.Server)
			setup(e)
			return nil
		},
		Condition: condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    exits,
			"module":   writeModule,
			"server":   serverCommand,
			"host":     hostCommand,
			"registry": registryCommand,
			"flip":     flip,
			"recorded": unpackRecorded,
			"restore":  restoreDump,
			"sql":      runSQL,
		},
	})
}

// scriptEnvironment builds the tools and returns the variables that all scripts
// have. Caches are shared, so that each module is compiled once.
func scriptEnvironment(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range testTools {
		module, err := guest.Find(t.Context(), filepath.Join("..", "testdata", "tools", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".wasm"), module.Wasm, 0o600); err != nil {
			t.Fatal(err)
		}
		warm(t, module.Wasm)
	}
	source, err := filepath.Abs("../testdata/tools")
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"REPOSITORY=" + filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(source)))), "TOOLS=" + dir, "SOURCE=" + source, "XDG_CACHE_HOME=" + os.Getenv("XDG_CACHE_HOME"),
		"GOCACHE=" + os.Getenv("GOCACHE"), "GOMODCACHE=" + os.Getenv("GOMODCACHE"),
	}
}

// warm compiles a module into the shared cache, so that the scripts, which begin
// at the same time, need not do it all at once. It does not matter whether the
// module is accepted.
func warm(t *testing.T, wasm []byte) {
	t.Helper()
	engine, err := starling.NewSandbox(t.Context(), starling.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(t.Context())
	if module, err := engine.Load(t.Context(), wasm, sandbox.DefaultLimits()); err == nil {
		module.Close(t.Context())
	}
}

// condition answers [nightly], whether tests may take minutes, and [has:PROGRAM] with a program of
// [treetest.Needs].
func condition(name string) (bool, error) {
	if program, ok := strings.CutPrefix(name, "has:"); ok {
		return treetest.Has(program) == nil, nil
	}
	if name != "nightly" {
		return false, fmt.Errorf("unknown condition %s", name)
	}
	return os.Getenv("STARLING_NIGHTLY") != "", nil
}

// handmadeModules are modules that no compiler writes, by what is wrong.
var handmadeModules = map[string]func() []byte{
	"not-wasm":  func() []byte { return []byte("#!/bin/sh\necho this is no module\n") },
	"component": func() []byte { return []byte("\x00asm\x0d\x00\x01\x00") },
	"empty":     func() []byte { return (&wasmtest.Module{}).Bytes() },
	"env-system": func() []byte {
		m := guestModule(1)
		m.Imports = []wasmtest.Import{{Module: "env", Name: "system", Type: wasmtest.Type("i:i")}}
		return m.Bytes()
	},
	"prints-text": func() []byte { // a WASI command
		m := &wasmtest.Module{
			Imports: []wasmtest.Import{{Module: "wasi_snapshot_preview1", Name: "fd_write", Type: wasmtest.Type("iiii:i")}},
			Memory:  wasmtest.Pages(1),
			Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
			Funcs: []wasmtest.Func{{Export: "_start", Type: wasmtest.Type(":"), Code: new(wasm.Asm).
				I32(1).I32(0).I32(1).I32(16).Index(wasm.OpCall, 0).Op(wasm.OpDrop)}},
			Data: []wasmtest.Data{{Bytes: "\x08\x00\x00\x00\x05\x00\x00\x00hello"}},
		}
		return m.Bytes()
	},
	"command-and-tool": func() []byte {
		const said = `{"tools":[{"name":"both","description":"It has a _start as well.","input_schema":{"type":"object"}}]}`
		m := guestModule(1)
		m.Data = []wasmtest.Data{{Offset: 1024, Bytes: said}}
		m.Funcs[1].Code = new(wasm.Asm).I64(1024<<32 | int64(len(said)))
		m.Funcs = append(m.Funcs, wasmtest.Func{Export: "_start", Type: wasmtest.Type(":"), Code: new(wasm.Asm)})
		return m.Bytes()
	},
	"four-gib": func() []byte { return guestModule(65536).Bytes() },
	"trapping-start": func() []byte {
		m := guestModule(1)
		m.Start = new(uint32(len(m.Funcs)))
		m.Funcs = append(m.Funcs, wasmtest.Func{Type: wasmtest.Type(":"), Code: new(wasm.Asm).Op(wasm.OpUnreachable)})
		return m.Bytes()
	},
}

// guestModule has the exports of a tool, which all return zero.
func guestModule(pages uint32) *wasmtest.Module {
	zero := func(export, letters string, code *wasm.Asm) wasmtest.Func {
		return wasmtest.Func{Export: export, Type: wasmtest.Type(letters), Code: code}
	}
	return &wasmtest.Module{
		Memory:  wasmtest.Pages(pages),
		Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Funcs: []wasmtest.Func{
			zero("starling_alloc", "i:i", new(wasm.Asm).I32(0)),
			zero("starling_describe", ":I", new(wasm.Asm).I64(0)),
			zero("starling_execute", "ii:I", new(wasm.Asm).I64(0)),
		},
	}
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func writeModule(ts *testscript.TestScript, _ bool, args []string) {
	build, ok := handmadeModules[args[0]]
	if im, imports := strings.CutPrefix(args[0], "imports:"); imports {
		ok, build = true, func() []byte {
			m := guestModule(1)
			from, name, _ := strings.Cut(im, "|")
			m.Imports = []wasmtest.Import{{Module: from, Name: name, Type: wasmtest.Type("i:i")}}
			return m.Bytes()
		}
	}
	if !ok || len(args) != 2 {
		ts.Fatalf("usage: module NAME FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), build(), 0o600))
}

// change runs a statement on a database, with the freedoms that an attacker
// with the file has.
func change(ts *testscript.TestScript, path, statement string, args ...any) {
	driver, source := "sqlite", ts.MkAbs(path)+"?_pragma=busy_timeout(30000)"
	if strings.HasPrefix(path, "postgres") {
		driver, source = "pgx", path
	}
	db, err := sql.Open(driver, source)
	ts.Check(err)
	defer db.Close()
	result, err := db.Exec(statement, args...)
	ts.Check(err)
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		ts.Fatalf("no row changed: %v", err)
	}
}

func flip(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: flip DB SEQ COLUMN")
	}
	path, seq, column := args[0], args[1], args[2]
	const where = " WHERE seq = ? AND run_id = (SELECT min(run_id) FROM eventlog_events)"
	switch column {
	case "ts":
		change(ts, path, "UPDATE eventlog_events SET ts = ts + 1"+where, seq)
	case "payload", "prev_hash":
		db, err := sql.Open("sqlite", ts.MkAbs(path)+"?_pragma=busy_timeout(30000)")
		ts.Check(err)
		defer db.Close()
		var value []byte
		ts.Check(db.QueryRow("SELECT "+column+" FROM eventlog_events"+where, seq).Scan(&value))
		value[len(value)-1] ^= 1
		change(ts, path, "UPDATE eventlog_events SET "+column+" = ?"+where, value, seq)
	default:
		ts.Fatalf("unknown column %s", column)
	}
}

func runSQL(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: sql DB STATEMENT")
	}
	change(ts, args[0], args[1])
}

func unpackRecorded(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: recorded FOLDER")
	}
	folder := filepath.Join(ts.Getenv("SOURCE"), "..", "recorded", args[0])
	files, err := os.ReadDir(folder)
	ts.Check(err)
	for _, entry := range files {
		data, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		ts.Check(err)
		name, packed := strings.CutSuffix(entry.Name(), ".bz2")
		if packed {
			data, err = io.ReadAll(bzip2.NewReader(bytes.NewReader(data)))
			ts.Check(err)
		}
		ts.Check(os.WriteFile(ts.MkAbs(name), data, 0o600))
	}
}

func restoreDump(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: restore DSN FILE")
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, args[0])
	ts.Check(err)
	defer conn.Close(ctx)
	_, err = conn.PgConn().Exec(ctx, ts.ReadFile(args[1])).ReadAll()
	ts.Check(err)
}
