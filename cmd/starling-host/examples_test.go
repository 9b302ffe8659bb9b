package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/ocitest"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// servers are the commands that go on until they are stopped, and those about the queue of
// one. Of their examples, and of those that listen or have a server of PostgreSQL, only the
// flags are looked at: the scripts do the same with real ones.
var servers = []string{"inspect", "serve", "queue", "hosts", "ready", "dev"}

// TestHelpExamples runs every example of every help text, in a folder with the
// tool dice and a database that has a run.
func TestHelpExamples(t *testing.T) {
	skipShort(t)
	t.Parallel()
	dir := exampleFolder(t)
	registry := ocitest.Registry(t, nil)
	push := exec.Command("starling-host", "tool", "push", "dice.wasm", "oci://"+registry+"/tools/dice:1.0")
	push.Dir = dir
	if out, err := push.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	root := (&app{stdin: os.Stdin, stdout: terminal.New(t.Output()), stderr: terminal.New(t.Output())}).root()
	seen := 0
	eachCommand(root, func(cmd *cobra.Command) {
		describe(cmd)
		if cmd.Runnable() && !cmd.HasSubCommands() && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			seen++
			if cmd.CommandPath() == "starling-host agent resume" {
				openRun(t, dir) // the newest run, whatever the other examples have recorded
			}
			if strings.HasPrefix(cmd.CommandPath(), "starling-host workspace") {
				given := exec.Command("starling-host", "run", "run_py", `{"code":"1"}`, "--dir", "tools")
				given.Dir = dir
				if out, err := given.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			}
			if strings.Contains(line, "'npx ") || strings.Contains(line, " mcp trust everything") || strings.Contains(line, " mcp login ") {
				continue // npm would fetch the server, or a user would log in
			}
			if slices.ContainsFunc(servers, func(name string) bool { return slices.Contains(strings.Fields(cmd.CommandPath()), name) }) || strings.Contains(line, "postgres://") || strings.Contains(line, "--listen") {
				if err := cmd.ParseFlags(strings.Fields(line)); err != nil {
					t.Errorf("%s: %v", strings.TrimSpace(line), err)
				}
				continue
			}
			key, makesKey := filepath.Join(dir, "seal.key"), strings.Contains(line, "seal keygen seal.key")
			if makesKey {
				_ = os.Rename(key, key+".kept") // that other examples seal with
			}
			shell := exec.Command("sh", "-c", strings.ReplaceAll(strings.TrimSpace(line), "registry.example.com", registry))
			shell.Dir = dir
			if out, err := shell.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", strings.TrimSpace(line), err, out)
			}
			if makesKey {
				_ = os.Rename(key+".kept", key)
			}
		}
	})
	if seen < 10 {
		t.Errorf("only %d examples were found", seen)
	}
}

// TestHelpTexts compares the files of the folder help with the commands.
func TestHelpTexts(t *testing.T) {
	t.Parallel()
	files, err := helpTexts.ReadDir("help")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{"starling-host.txt": true}
	for _, file := range files {
		texts[file.Name()] = true
	}
	root := (&app{stdin: os.Stdin, stdout: terminal.New(t.Output()), stderr: terminal.New(t.Output())}).root()
	eachCommand(root, func(cmd *cobra.Command) {
		name := strings.ReplaceAll(strings.TrimPrefix(cmd.CommandPath(), "starling-host "), " ", "-") + ".txt"
		if describe(cmd); !cmd.HasSubCommands() && cmd.Long == "" {
			t.Errorf("%s has no text in help/%s", cmd.CommandPath(), name)
		}
		delete(texts, name)
	})
	for name := range texts {
		t.Errorf("help/%s is of no command", name)
	}
}

// eachCommand visits the commands that this package defines.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		if sub.Name() != "completion" && sub.Name() != "help" {
			eachCommand(sub, visit)
		}
	}
}

// exampleFolder returns a folder with dice.wasm and starling.db.
func exampleFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	dice, err := guest.Find(t.Context(), "../../tools-wasm/dice")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dice.wasm", "tools/dice.wasm"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, dice.Wasm, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	program := (&wasmtest.Module{
		Memory:  wasmtest.Pages(1),
		Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Funcs:   []wasmtest.Func{{Export: "_start", Type: wasmtest.Type(":"), Code: new(wasm.Asm)}},
	}).Bytes()
	if err := os.WriteFile(filepath.Join(dir, "gojq.wasm"), program, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sales"), 0o700); err != nil {
		t.Fatal(err)
	}
	run := exec.Command("starling-host", "run", "dice.wasm")
	run.Dir = dir
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkout(t, dir)
	writeAgent(t, dir)
	document, err := os.ReadFile(filepath.FromSlash("internal/openapi/testdata/shop/openapi.yaml"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "openapi.yaml"), document, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(examplePolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	writeTenants(t, dir)
	return dir
}

// writeTenants puts two tenants into the database, with what the examples need.
func writeTenants(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "token.txt"), []byte("0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hostFile := "listen: 127.0.0.1:0\ndatabase: starling.db\nkey_file: host.key\n"
	if err := os.WriteFile(filepath.Join(dir, "host.yaml"), []byte(hostFile), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"starling-host seal keygen seal.key --name example.com/runs > seal.vkey",
		"starling-host tenant keygen host.key",
		"starling-host tenant keygen next.key",
		"starling-host tenant create acme --key-file host.key > old-key.txt",
		"starling-host tenant create gone --key-file host.key",
		"starling-host secret set acme OLD_TOKEN --host example.com --key-file host.key < token.txt",
	} {
		shell := exec.Command("sh", "-c", line)
		shell.Dir = dir
		if out, err := shell.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	f := hostFlags{database: filepath.Join(dir, "starling.db")}
	if err := f.withTenants(t.Context(), toChange, func(ts tenants) error {
		dice, err := os.ReadFile(filepath.Join(dir, "dice.wasm"))
		if err != nil {
			return err
		}
		_, err = ts.AddModule(t.Context(), "acme", "dice", dice, "[]", nil, -1)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// examplePolicy allows what the examples ask for.
const examplePolicy = "version: \"1.0\"\npermissions: {network: {allow: [{host: api.stripe.com}]}}\n"

// checkout copies what the example agent needs of a checkout.
func checkout(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"guest-sdk/go", "tools-wasm", "examples/agent"} {
		from, to := filepath.Join("../..", name), filepath.Join(dir, filepath.Dir(name))
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-R", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// agentFiles are the agent of the examples, and what its model says.
var agentFiles = map[string]string{
	"agent.yaml": "provider: {script: turns.yaml}\ntools: [dice.wasm]\n",
	"turns.yaml": "- tool_calls: [{name: dice, args: {rolls: 2}}]\n- text: So it is.\n",
}

func writeAgent(t *testing.T, dir string) {
	t.Helper()
	for name, text := range agentFiles {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// openRun leaves a run of the agent in the database that has begun and has no end.
func openRun(t *testing.T, dir string) {
	t.Helper()
	a := &app{stdin: os.Stdin, stdout: terminal.New(io.Discard), stderr: terminal.New(io.Discard)}
	db, w, _, err := a.openAgent(t.Context(), agentFlags{file: filepath.Join(dir, "agent.yaml"), database: filepath.Join(dir, "starling.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	log := w.Log
	w.Log = store.Memory()
	dice, err := os.ReadFile(filepath.Join(dir, "dice.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Log.(eventlog.ModuleStore).PutModule(t.Context(), dice); err != nil {
		t.Fatal(err)
	}
	r, err := w.Run(t.Context(), "Roll.")
	if err != nil {
		t.Fatal(err)
	}
	events, err := w.Log.Read(t.Context(), r.RunID)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range events[:2] {
		if err := log.Append(t.Context(), r.RunID, ev); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Sync(t.Context(), r.RunID); err != nil {
		t.Fatal(err)
	}
}
