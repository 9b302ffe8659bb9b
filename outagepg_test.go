package starling_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/internal/wasm"
)

// TestAPostgresOutageIsNoVerdict takes the server away while runs are checked and replayed, and
// gives it back: no run is invalid, and the same database goes on, recording included.
func TestAPostgresOutageIsNoVerdict(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: a read waits 10 s for a server that is away; run without -short")
	}
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	address := server.Database(t)
	starling.Must(store.OpenServer(t.Context(), address, store.ServerOptions{AutoMigrate: true})).Close()
	db := starling.Must(starling.Open(t.Context(), address, starling.Options{Engine: starling.EngineOptions{Kind: starling.Interpreter}}))
	defer db.Close()
	tool := starling.Must(db.LoadBytes(t.Context(), "command", command(new(wasm.Asm)), starling.ToolOptions{}))
	for range 3 {
		if run, err := tool.Call(t.Context(), "{}"); run == nil { // which fails, as the command writes nothing
			t.Fatal(err)
		}
	}
	ids := starling.Must(db.RunIDs(t.Context()))
	check := func() (checked int, err error) {
		err = db.ValidateAll(t.Context(), ids, func(v starling.Validation) error {
			checked++
			if v.Err != nil {
				t.Errorf("run %s is invalid: %v", v.RunID, v.Err)
			}
			return nil
		})
		return checked, err
	}
	server.Crash(t)
	if checked, err := check(); !errors.Is(err, eventlog.ErrUnavailable) || eventlog.IsVerdict(err) || checked != 0 {
		t.Errorf("with the server away: %d checked, %v", checked, err)
	}
	v, err := db.Replay(t.Context(), ids[0])
	if !errors.Is(err, eventlog.ErrUnavailable) || v.Corrupt != nil || v.Refused != nil || v.Divergence != nil {
		t.Errorf("replay with the server away: %v, %v", v, err)
	}
	back := time.AfterFunc(2*time.Second, func() { server.Restart(t) })
	defer back.Stop()
	for end := time.Now().Add(time.Minute); ; {
		checked, err := check()
		if err == nil && checked == len(ids) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the server is back: %d checked, %v", checked, err)
		}
	}
	if v, err := db.Replay(context.WithoutCancel(t.Context()), ids[0]); err != nil || !v.Identical() {
		t.Errorf("replay with the server back: %v, %v", v, err)
	}
	if run, err := tool.Call(t.Context(), "{}"); run == nil {
		t.Errorf("a call with the server back: %v", err)
	}
}
