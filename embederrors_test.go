package starling_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/runtime/tool"
)

// command returns a WASI command with that code.
func command(code *wasm.Asm) []byte {
	return (&wasmtest.Module{
		Memory:  wasmtest.Pages(1),
		Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Funcs:   []wasmtest.Func{{Export: "_start", Type: wasmtest.Type(":"), Code: code}},
	}).Bytes()
}

// TestErrorsOfOpenSayWhetherToTryAgain opens a server that is not there, a file that cannot be
// made, and a database that was closed.
func TestErrorsOfOpenSayWhetherToTryAgain(t *testing.T) {
	if _, err := starling.Open(t.Context(), "postgres://127.0.0.1:1/starling?connect_timeout=2", starling.Options{}); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("an unreachable server: %v", err)
	}
	dir := t.TempDir()
	if _, err := starling.Open(t.Context(), filepath.Join(dir, "no", "starling.db"), starling.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path in a folder that is not there: %v", err)
	}
	db := starling.Must(starling.Open(t.Context(), filepath.Join(dir, "starling.db"), starling.Options{}))
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if _, err := db.LoadBytes(t.Context(), "command", command(new(wasm.Asm)), starling.ToolOptions{}); !errors.Is(err, eventlog.ErrLogClosed) {
		t.Errorf("Load after Close: %v", err)
	}
	if _, err := db.Runs(t.Context(), eventlog.RunPageOptions{}); !errors.Is(err, eventlog.ErrLogClosed) {
		t.Errorf("Runs after Close: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "starling.db")); err == nil {
		t.Error("a database that was closed made its file")
	}
}

// TestADeadlineOfACallIsTheDeadlineOfItsContext ends a call that goes on for ever, by the
// deadline of its caller and by its own.
func TestADeadlineOfACallIsTheDeadlineOfItsContext(t *testing.T) {
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "starling.db"), starling.Options{}))
	defer db.Close()
	endless := new(wasm.Asm).Block(wasm.OpLoop, wasm.BlockEmpty).Index(wasm.OpBr, 0).Op(wasm.OpEnd)
	forever := starling.Must(db.LoadBytes(t.Context(), "forever", command(endless), starling.ToolOptions{Limits: sandbox.Limits{Fuel: 1 << 50}}))
	for patience := 50 * time.Millisecond; ; patience *= 2 { // a slow machine may not begin the call within the first ones
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := forever.Call(ctx, "{}")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, tool.ErrCancelled) && patience > time.Minute {
			t.Fatalf("the caller's deadline: %v", err)
		} else if errors.Is(err, tool.ErrCancelled) {
			break
		}
	}
	why := errors.New("the user went away")
	stopped, stop := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { stop(why) })
	if _, err := forever.Call(stopped, "{}"); !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
		t.Errorf("the caller's cause: %v", err)
	}
	short := starling.Must(db.LoadBytes(t.Context(), "forever", command(endless), starling.ToolOptions{Limits: sandbox.Limits{Fuel: 1 << 50, TimeoutMs: 50}}))
	if _, err := short.Call(t.Context(), "{}"); !errors.Is(err, tool.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the tool's own limit: %v", err)
	}
}

// TestTheErrorOfACallIsOneLine has a failure whose record has the stacks of a Go tool.
func TestTheErrorOfACallIsOneLine(t *testing.T) {
	run := &starling.Run{Tool: "greedy", Failure: &starling.Failure{Type: "memory", Message: "tool: memory: more than 64 MiB\ngoroutine 1 [running]:\nmain.main()"}}
	if text := (&starling.CallError{Run: run}).Error(); text != "greedy: tool: memory: more than 64 MiB" {
		t.Errorf("%q", text)
	}
}

// TestABuildFailureHasTheCompilersText builds a folder that is not Go.
func TestABuildFailureHasTheCompilersText(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module broken\n\ngo 1.24\n", "main.go": "package main\n\nfunc main() { undefinedName() }\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db := starling.Over(nil, starling.Options{})
	defer db.Close()
	if _, err := db.Load(t.Context(), dir, starling.ToolOptions{}); err == nil || !strings.Contains(err.Error(), "undefinedName") {
		t.Errorf("the error does not have the compiler's text: %v", err)
	}
}

// TestTheLastRunIsTheOneBegunLast has the clock step back between two runs, before 1970.
func TestTheLastRunIsTheOneBegunLast(t *testing.T) {
	log := starling.Must(store.Open(t.Context(), filepath.Join(t.TempDir(), "starling.db"), store.Options{}))
	defer log.Close()
	for id, at := range []time.Duration{48 * time.Hour, 24 * time.Hour, -24 * time.Hour} {
		c := logtest.Chain{RunID: []string{"first", "second", "third"}[id], Clock: int64(at)}
		start := c.Start("g")
		if err := errors.Join(log.Append(t.Context(), start.RunID, start), log.Sync(t.Context(), start.RunID)); err != nil {
			t.Fatal(err)
		}
		if last, err := starling.FindRun(t.Context(), log, starling.LastRun); err != nil || last != start.RunID {
			t.Errorf("after %s, the last run is %s, %v", start.RunID, last, err)
		}
	}
	page, err := log.ListRunsPage(t.Context(), eventlog.RunPageOptions{Begun: true, Limit: 2, Offset: 1})
	if err != nil || len(page.Runs) != 2 || page.Runs[0].RunID != "second" || page.Runs[1].RunID != "first" {
		t.Errorf("the second page: %+v, %v", page.Runs, err)
	}
}
