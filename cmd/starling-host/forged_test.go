package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/pgtest"
)

// signer is a surface that signs, or hands out proofs, what is in a database. It returns what it said, and
// whether it was refused. One without the API's key or of a run that is not encrypted may have no such surface.
type signer struct {
	files string // of the product in which the surface asks for it, separated by spaces
	ask   func(t *testing.T, f forging) (out string, refused bool)
}

type forging struct {
	p                 *proofs
	where, id, master string
	call              func(path string) (string, bool) // of the API; nil without
}

var signers = map[string]signer{
	"command receipt": {"cmd/starling-host/bundle.go", func(t *testing.T, f forging) (string, bool) {
		return command(withMaster([]string{"receipt", f.where, f.id, "--key", f.p.key}, f.master)...)
	}},
	"command bundle": {"cmd/starling-host/bundle.go", func(t *testing.T, f forging) (string, bool) {
		return command("bundle", f.where, f.id, "--receipts", f.p.key, "-o", filepath.Join(t.TempDir(), "b.starling"))
	}},
	"command prove": {"cmd/starling-host/bundle.go", func(t *testing.T, f forging) (string, bool) {
		return command("prove", f.where, f.id, "2")
	}},
	"Go receipts": {"seal.go eventlog/receipt/receipt.go", func(t *testing.T, f forging) (string, bool) {
		return f.inGo(t, func(db *starling.DB) error { _, err := db.Receipts(t.Context(), f.id); return err })
	}},
	"Go bundle": {"seal.go eventlog/seal/proof.go", func(t *testing.T, f forging) (string, bool) {
		return f.inGo(t, func(db *starling.DB) error { _, err := db.Bundle(t.Context(), f.id); return err })
	}},
	"Go prove": {"seal.go", func(t *testing.T, f forging) (string, bool) {
		return f.inGo(t, func(db *starling.DB) error { _, err := db.Prove(t.Context(), f.id, 2); return err })
	}},
	"get_receipt of an assistant": {"serve/internal/mcpsrv/logtools.go serve/internal/eventview/view.go serve/gateway/service.go", func(t *testing.T, f forging) (string, bool) {
		return askTool(t, withMaster([]string{"mcp", f.where, "--receipts", f.p.key}, f.master), "get_receipt", map[string]any{"run_id": f.id})
	}},
	"API": {"serve/internal/daemon/receipts.go serve/internal/daemon/space.go serve/internal/daemon/tools.go", func(t *testing.T, f forging) (string, bool) {
		if f.call == nil {
			return "", false
		}
		return f.call("/api/v1/runs/" + strings.TrimPrefix(f.id, "acme/") + "/receipt")
	}},
}

// signsElsewhere are the files that ask for signatures of what they have recorded themselves just before, of new
// leaves, or of what is no run. TestInvalidRunsAreNotSealed of package seal forges what becomes a leaf.
var signsElsewhere = "serve/gateway/tools.go serve/seal.go cmd/starling-host/seal.go eventlog/seal/log.go eventlog/seal/sealer.go"

func (f forging) inGo(t *testing.T, do func(db *starling.DB) error) (string, bool) {
	log := open(t, f.where, f.master)
	defer log.Close()
	if err := do(starling.Over(log, starling.Options{Receipts: &receipt.Issuer{Key: f.p.signer}})); err != nil {
		return err.Error(), true
	}
	return "", false
}

// TestNoSurfaceSignsWhatWasForged changes rows of a sealed database, a file or on a server, in the clear and
// encrypted, and asks every surface that signs.
func TestNoSurfaceSignsWhatWasForged(t *testing.T) {
	t.Parallel()
	p := newProofs(t)
	for _, server := range []bool{false, true} {
		for _, encrypted := range []bool{false, true} {
			t.Run(fmt.Sprintf("server=%t,encrypted=%t", server, encrypted), func(t *testing.T) {
				t.Parallel()
				p.forge(t, server, encrypted)
			})
		}
	}
}

func (p *proofs) forge(t *testing.T, server, encrypted bool) {
	where := filepath.Join(t.TempDir(), "a.db")
	if server {
		where = pgtest.Database(t)
	}
	ids, key := p.record(t, where, encrypted)
	must(t, "seal", where, "--key", p.key)
	f := forging{p: p, where: where, id: ids[1]}
	if encrypted {
		f.master = p.master
		file := fmt.Sprintf("listen: 127.0.0.1:0\ndatabase: %q\nkey_file: %q\nreceipts: {key_file: %q}\n", where, p.master, p.key)
		config := filepath.Join(t.TempDir(), "host.yaml")
		if err := os.WriteFile(config, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		line := listening(t, "serve", "--config", config)
		api, err := url.Parse(strings.TrimSpace(strings.TrimPrefix(line, "API")))
		if err != nil {
			t.Fatal(err)
		}
		api.Fragment = key
		f.call = func(path string) (string, bool) {
			status, text := request(t, "GET", api, path)
			return fmt.Sprint(status, " ", text), status != http.StatusOK
		}
	}
	ask := func(name, forged string) {
		t.Helper()
		out, refused := signers[name].ask(t, f)
		switch {
		case name == "API" && f.call == nil:
		case refused != (forged != ""):
			t.Errorf("%s of %q: refused %t: %s", name, forged, refused, out)
		case refused && (strings.Contains(out, "payloadType") || strings.Contains(out, "tlog_proof")):
			t.Errorf("%s of %q is refused, and signed: %s", name, forged, out)
		}
	}
	db := starling.Must(store.Open(t.Context(), where, store.Options{}))
	defer db.Close()
	set := func(sql string, args ...any) {
		t.Helper()
		err := db.Transact(t.Context(), func(tx eventlog.Tx) error {
			n, err := tx.Exec(sql, args...)
			if err == nil && n != 1 {
				err = fmt.Errorf("%d rows", n)
			}
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	names := slices.Sorted(maps.Keys(signers))
	for _, name := range names {
		ask(name, "")
	}
	for _, row := range []struct {
		table, column, where string
		forge                func(was any) any
	}{
		{"eventlog_events", "ts", "seq = 3 AND run_id = $1", func(was any) any { return was.(int64) - 1000 }},
		{"eventlog_events", "payload", "seq = 1 AND run_id = $1", flipped},
		{"eventlog_events", "payload", "seq = 2 AND run_id = $1", flipped},
		{"eventlog_events", "payload", "seq = 3 AND run_id = $1", flipped},
		{"run_leaf", "terminal_hash", "run_id = $1", flipped},
		{"run_leaf_hash", "hash", "place = 0 AND '' <> $1", flipped},
	} {
		was := starling.Must(eventlog.View(t.Context(), db, func(q eventlog.Querier) (was any, err error) {
			err = q.Query("SELECT "+row.column+" FROM "+row.table+" WHERE "+row.where, []any{f.id}, func(r eventlog.Row) error {
				if row.column == "ts" {
					var n int64
					err := r.Scan(&n)
					was = n
					return err
				}
				var b []byte
				err := r.Scan(&b)
				was = b
				return err
			})
			return was, err
		}))
		update := "UPDATE " + row.table + " SET " + row.column + " = $2 WHERE " + row.where
		set(update, f.id, row.forge(was))
		for _, name := range names {
			ask(name, row.table+"."+row.column+" "+row.where)
		}
		set(update, f.id, was)
	}
	for _, name := range names {
		ask(name, "")
	}
}

func flipped(was any) any {
	b := bytes.Clone(was.([]byte))
	b[len(b)/2] ^= 1
	return b
}

// TestEverySignerIsForged finds the files of the product that ask for signatures or proofs of what a database
// has: each is that of a signer.
func TestEverySignerIsForged(t *testing.T) {
	listed := map[string]bool{}
	for _, s := range signers {
		for _, file := range strings.Fields(s.files) {
			listed[file] = true
		}
	}
	for _, file := range strings.Fields(signsElsewhere) {
		listed[file] = true
	}
	asks := regexp.MustCompile(`\.(Issue|Receipts|Issuer|ProveRuns|ProveEvent|Prove)\(|Receipts\.Sign\(|Options\{Receipts: |seal\.(Seal|Prove)|\.sealer\.Seal\(|ProveRuns\(ctx`)
	found := 0
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(filepath.ToSlash(name), "../../")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules" || d.Name() == "bench" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 || strings.HasSuffix(d.Name(), "test")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err == nil && asks.Match(regexp.MustCompile(`(?m)^\s*//.*$`).ReplaceAll(text, nil)) {
			if found++; !listed[rel] {
				t.Errorf("%s asks for signatures or proofs: forge through it as a signer of this test", rel)
			}
		}
		return err
	})
	if err != nil || found < 8 {
		t.Errorf("%d files: %v", found, err)
	}
}
