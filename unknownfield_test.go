package starling_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
)

// TestUnknownEventFields takes a run through everything that reads runs, after a newer
// version has added an optional field to its first payload (spec/event.md, section 12).
func TestUnknownEventFields(t *testing.T) {
	inner, key := recorded(t)
	wasm, err := os.ReadFile("spec/tck/modules/echo.wasm")
	if err != nil {
		t.Fatal(err)
	}
	source := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "source.db"), starling.Options{}))
	defer source.Close()
	tool := starling.Must(source.LoadBytes(t.Context(), "echo", wasm, starling.ToolOptions{}))
	run := starling.Must(tool.Call(t.Context(), `{"a":1}`))
	log := starling.Must(source.Log(t.Context()))
	events := starling.Must(log.Read(t.Context(), run.ID))
	key0 := canon.AppendText(nil, "a_field_whose_name_is_longer_than_any_other")
	first := append(bytes.Clone(events[0].Payload), append(key0, 0xf5)...)
	first[0]++ // one pair more
	events[0].Payload = first
	var hashes []canon.Hash
	for i := range events {
		if i > 0 {
			events[i].PrevHash = hashes[i-1][:]
		}
		if events[i].Kind.Terminal() {
			done := starling.Must(event.Decode[event.RunCompleted](events[i]))
			root := canon.Root(hashes)
			done.MerkleRoot = root[:]
			events[i].Payload = starling.Must(event.EncodePayload(done))
		}
		hashes = append(hashes, events[i].Hash())
		if err := inner.Append(t.Context(), run.ID, events[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := inner.Sync(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := inner.PutModule(t.Context(), wasm); err != nil {
		t.Fatal(err)
	}

	db := starling.Over(inner, starling.Options{})
	defer db.Close()
	const field = "RunStarted.a_field_whose_name_is_longer_than_any_other"
	if v, err := db.Validate(t.Context(), run.ID); err != nil || v.Err != nil || v.Report.Unknown != field {
		t.Errorf("validate: %+v, %v", v, err)
	}
	_, err = db.Replay(t.Context(), run.ID)
	if _, ok := errors.AsType[*agent.UnsupportedError](err); !ok || !strings.Contains(err.Error(), field) {
		t.Errorf("replay: %v", err)
	}
	if _, err := db.Seal(t.Context(), key); err != nil {
		t.Errorf("seal: %v", err)
	}
	if r, err := db.Verify(t.Context(), nil, seal.Evidence{}); err != nil || len(r.Problems) > 0 || r.Present != 4 {
		t.Errorf("verify: %+v, %v", r, err)
	}
	var archive bytes.Buffer
	if r, err := store.WriteArchive(t.Context(), &archive, inner, eventlog.PruneOptions{}); err != nil || r.Runs != 4 {
		t.Errorf("archive: %+v, %v", r, err)
	}
	if _, err := store.CheckArchive(t.Context(), &archive); err != nil {
		t.Errorf("the archive: %v", err)
	}
	b, err := db.Bundle(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	file := starling.Must(b.Bytes())
	v, err := starling.VerifyBundle(t.Context(), file, starling.BundleOptions{})
	if err != nil || v.Invalid != nil || v.Identical() || v.Document().Verdict != agent.NotReplayed {
		t.Errorf("verify a bundle: %+v, %v", v, err)
	}
}

// TestVerifyBundleTimeout has a bundle whose runs never end, as one from somebody else may:
// the time is for all of them, and each that was not executed is named.
func TestVerifyBundleTimeout(t *testing.T) {
	inner, _ := recorded(t)
	db := starling.Over(inner, starling.Options{})
	defer db.Close()
	runs := starling.Must(inner.ListRuns(t.Context()))
	file := starling.Must(starling.Must(db.Bundle(t.Context(), runs[1].RunID, runs[2].RunID)).Bytes())
	executed := 0
	v, err := starling.VerifyBundle(t.Context(), file, starling.BundleOptions{
		Timeout:  10 * time.Millisecond,
		Executed: func(starling.Verdict) { executed++ },
		Execute: func(ctx context.Context, _ []event.Event, _ eventlog.ModuleReader) (agent.Verdict, error) {
			<-ctx.Done()
			return agent.Verdict{}, ctx.Err()
		},
	})
	if err != nil || len(v.Runs) != 2 || executed != 2 || v.Document().Verdict != agent.NotReplayed {
		t.Fatalf("%+v, %v", v, err)
	}
	for _, run := range v.Runs {
		if !errors.Is(run.Refused, starling.ErrReplayTimeout) {
			t.Errorf("run %s: %v", run.RunID, run.Refused)
		}
	}
}
