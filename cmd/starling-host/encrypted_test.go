package main

import (
	"bufio"
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/tenant"
)

// encryptedDatabase returns the paths of a database with one run of a tenant, and of
// the master key.
func encryptedDatabase(t *testing.T) (path, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	path, keyFile = filepath.Join(dir, "host.db"), filepath.Join(dir, "host.key")
	inner, err := store.OpenFile(t.Context(), path, store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	master, err := tenant.CreateMasterKey(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	tenants, err := tenant.Open(t.Context(), inner, tenant.Options{Masters: []tenant.MasterKey{master}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tenants.Create(t.Context(), tenant.Tenant{ID: "acme"}); err != nil {
		t.Fatal(err)
	}
	key, err := tenants.DataKey(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	log, err := store.Encrypted(inner, key, "acme")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range logtest.Finished("acme/01JGQ4T0000000000000000000", 3) {
		if err := log.Append(t.Context(), e.RunID, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return path, keyFile
}

// Whoever has the file and no key can validate a tenant's runs and list them;
// everything else says that they are encrypted, instead of showing them as empty.
// The master key opens them.
func TestEncryptedRuns(t *testing.T) {
	t.Parallel()
	db, key := encryptedDatabase(t)
	other := filepath.Join(t.TempDir(), "other.key")
	if _, err := tenant.CreateMasterKey(other); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(t.TempDir(), "plain.db")
	openTestLog(t, plain)
	file := filepath.Join(t.TempDir(), "runs.ndjson")
	for _, tc := range []struct {
		args []string
		code int
		want string // on either output
	}{
		{[]string{"validate", db}, exitOK, "valid    acme/01JGQ4T0000000000000000000  7 events, 7 encrypted, root "},
		{[]string{"validate", db, "-o", "json"}, exitOK, `"events":7,"encrypted":7,"head":"`},
		{[]string{"runs", db}, exitOK, "acme/01JGQ4T0000000000000000000"},
		{[]string{"show", db, "@last", "--events"}, exitOK, "the payload is encrypted; the data key decrypts it"},
		{[]string{"replay", db, "@last"}, exitRefused, "the payload is encrypted"},
		{[]string{"policy", "suggest", db, "@last"}, exitRefused, "hint: to decrypt runs of tenants, pass the master key: --key-file FILE (runs of erased tenants stay unreadable)"},
		{[]string{"policy", "test", "../../examples/policy/policy.yaml", db, "--against", "2006-01-02"}, exitUsage, "hint: the master key opens it in the database that has its tenant: --key-file FILE"},
		{[]string{"validate", db, "--key-file", key}, exitOK, "7 events, 7 encrypted and opened, root "},
		{[]string{"validate", db, "--key-file", key, "-o", "json"}, exitOK, `"encrypted":7,"opened":true,"head":"`},
		{[]string{"show", db, "@last", "--events", "--key-file", key}, exitOK, "ToolCallScheduled    t {\"n\":3}"},
		{[]string{"export", db, "@last", "--key-file", key}, exitOK, `"goal":"call"`},
		{[]string{"replay", db, "@last", "--key-file", key}, exitRefused, "a direct run has one"},
		{[]string{"show", db, "@last", "--key-file", other}, exitUsage, "the master key does not match"},
		{[]string{"archive", db, file}, exitOK, "1 run, 7 events and 0 modules in " + file + "; encrypted, without keys and modules: 1 run\n"},
		{[]string{"archive", "--check", file}, exitOK, "valid: 1 run, 7 events and 0 modules; encrypted, without keys and modules: 1 run\n"},
		{[]string{"import", filepath.Join(t.TempDir(), "new.db"), file}, exitOK, "encrypted, without keys and modules: 1 run\n"},
		{[]string{"validate", plain, "--key-file", key}, exitOK, "1 run: 1 valid, 0 invalid"},
	} {
		var out bytes.Buffer
		code := Main(tc.args, strings.NewReader(""), &out, &out)
		if code != tc.code || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%s: exit code %d\n%s", tc.args[0], code, out.String())
		}
	}
}

// With the master key, the page and the assistant read the runs of tenants as well.
func TestServedEncryptedRuns(t *testing.T) {
	t.Parallel()
	db, key := encryptedDatabase(t)
	const run = "acme%2F01JGQ4T0000000000000000000"
	for file, opened := range map[string]bool{"": false, key: true} {
		page := ask(t, "GET", inspected(t, file, db), "/runs/"+run+"/events")
		if strings.Contains(page, "the payload is encrypted") == opened {
			t.Errorf("inspect with the key %q: %s", file, page)
		}
		args := []string{"mcp", db}
		if file != "" {
			args = append(args, "--key-file", file)
		}
		if answer := askAssistant(t, args, searchRuns); strings.Contains(answer, "payload is encrypted") == opened || !strings.Contains(answer, "ToolCallScheduled") {
			t.Errorf("mcp with the key %q: %s", file, answer)
		}
	}
}

// TestErasedWhileServed erases a tenant in another process while a page shows one of its runs.
func TestErasedWhileServed(t *testing.T) {
	t.Parallel()
	db, key := encryptedDatabase(t)
	const run = "/runs/acme%2F01JGQ4T0000000000000000000"
	address := inspected(t, key, db)
	page := ask(t, "GET", address, run+"/events")
	if strings.Contains(page, "the payload is encrypted") {
		t.Fatalf("with the key: %s", page)
	}
	ask(t, "GET", address, run)
	if page := ask(t, "POST", address, run+"/validate"); !strings.Contains(page, "All 7 events were unchanged.") {
		t.Errorf("validated: %s", page)
	}
	var out bytes.Buffer
	if code := Main([]string{"tenant", "erase", "acme", "--yes", "--db", db}, strings.NewReader(""), &out, &out); code != exitOK {
		t.Fatalf("erase: exit code %d\n%s", code, out.String())
	}
	for end := time.Now().Add(time.Minute); !strings.Contains(page, "the payload is encrypted"); page = ask(t, "GET", address, run+"/events") {
		if time.Now().After(end) {
			t.Fatalf("a minute after the tenant was erased: %s", page)
		}
	}
	if page := ask(t, "GET", address, run); strings.Contains(page, "n&#34;:3") || !strings.Contains(page, "encrypted") {
		t.Errorf("waterfall: %s", page)
	}
	if page := ask(t, "GET", address, run+"/validate"); !strings.Contains(page, "has not validated the run yet") {
		t.Errorf("the result of a check before: %s", page)
	}
}

// TestReplayedEncryptedRuns has runs of a tenant answer, which takes the key, until the tenant is erased.
func TestReplayedEncryptedRuns(t *testing.T) {
	t.Parallel()
	db, key := encryptedDatabase(t)
	for _, command := range [][]string{{"mcp", "--replay", db}, {"mcp", "verify", db, "--server", "x=false"}} {
		run := func(with ...string) string {
			var out bytes.Buffer
			if code := Main(append(command, with...), strings.NewReader(initialize), &out, &out); code != exitUsage && len(with) == 0 {
				t.Errorf("%s: exit code %d", command, code)
			}
			return out.String()
		}
		if out := run(); !strings.Contains(out, "is encrypted\nhint: pass the master key of its tenant: --key-file FILE\n") {
			t.Errorf("%s without a key: %s", command, out)
		}
		if out := run("--key-file", key); strings.Contains(out, "is encrypted") || strings.Contains(out, "no recorded calls") {
			t.Errorf("%s: %s", command, out)
		}
	}
	var out bytes.Buffer
	for _, args := range [][]string{{"tenant", "erase", "acme", "--yes", "--db", db}, {"mcp", "--replay", db, "--key-file", key}} {
		Main(args, strings.NewReader(initialize), &out, &out)
	}
	if !strings.Contains(out.String(), "is left out: its tenant was erased\n") || !strings.Contains(out.String(), "it has no recorded calls\nhint: record some: ") {
		t.Errorf("after the tenant was erased: %s", out.String())
	}
}

// askAssistant starts a server, sends it messages, the first of which initializes it, and returns the answer to
// the next one.
func askAssistant(t *testing.T, args []string, messages string) string {
	t.Helper()
	stdin, send := io.Pipe()
	receive, stdout := io.Pipe()
	done := make(chan int, 1)
	go func() { done <- Main(args, stdin, stdout, io.Discard); stdout.Close() }()
	go io.WriteString(send, messages) // what it does not read is not waited for
	lines := bufio.NewReader(receive)
	_, err := lines.ReadString('\n')
	answer, err2 := lines.ReadString('\n')
	stdin.Close()
	if code := <-done; err != nil || err2 != nil {
		t.Fatalf("%s: exit code %d, %v, %v", args[0], code, err, err2)
	}
	return answer
}

// initialize is what an assistant sends first.
const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`

// searchRuns is what an assistant sends to find a call.
const searchRuns = initialize + `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search_runs","arguments":{"kind":"ToolCallScheduled"}}}
`

// openTestLog writes a database without tenants that has one run.
func openTestLog(t *testing.T, path string) {
	t.Helper()
	log, err := store.OpenFile(t.Context(), path, store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range logtest.Finished("r", 3) {
		if err := log.Append(t.Context(), "r", e); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}
