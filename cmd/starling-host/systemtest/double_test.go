package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/treetest"
)

// hold holds a part of the session with a server through the gateway that is called with args, and returns the answers
// to what is recorded, as the client hears them.
func (m mirrored) hold(t *testing.T, dir string, args ...string) (answers []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*awaitTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "starling-host", append([]string{"mcp"}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir)
	cmd.Dir = dir
	in, lines, complaints := talk(t, cmd)
	fill := strings.NewReplacer("{p}", m.name+"_", "{dir}", filepath.Join(dir, "files")).Replace
	steps := append([]step{{method: "initialize", params: hello}, {method: "notifications/initialized"}, {method: "tools/list"}}, m.steps...)
	for i, asked := range slices.Concat(steps, m.steps[:1]) { // the first one again
		id, recorded := fmt.Sprint(i), slices.Contains([]string{"tools/call", "resources/read", "prompts/get"}, asked.method)
		switch {
		case i > 2 && !recorded || strings.Contains(asked.params, `"task"`):
			continue
		case strings.HasPrefix(asked.method, "notifications/"):
			fmt.Fprintf(in, `{"jsonrpc":"2.0","method":%q}`+"\n", asked.method)
			continue
		}
		fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`+"\n", id, asked.method, fill(canonParams(asked.params)))
		for answered := ""; answered != id; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatalf("%s %s: %v\n%s", asked.method, asked.params, err, complaints.String())
			}
			var doc map[string]any
			if doc, answered, err = message(line); err != nil {
				t.Fatal(err)
			}
			if method, ok := doc["method"].(string); ok && answered != "" { // a question
				fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%s,%s}`+"\n", answered, fill(m.answerTo(method, doc)))
				answered = ""
			} else if answered == id && recorded {
				exact, err := canon.JSON(line)
				if err != nil {
					t.Fatal(err)
				}
				answers = append(answers, string(exact))
			}
		}
	}
	_ = cmd.Process.Kill() // with its answers given, nothing is left to be done
	_ = cmd.Wait()
	return answers
}

// canonParams returns params, which a request has in any case.
func canonParams(params string) string {
	if params == "" {
		return "{}"
	}
	return params
}

// TestDouble records sessions with servers that others have written, and with one that says what no other does. Without
// the servers, the record gives each client the same answers: every byte, over standard input and output and over HTTP. And
// the servers themselves still answer as they did.
func TestDouble(t *testing.T) {
	skipShort(t)
	needsMCPClients(t)
	treetest.NeedsNPM(t, mcpServers)
	t.Parallel()
	for _, m := range mirroredServers(t) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			place := func() {
				for _, err := range []error{os.RemoveAll(filepath.Join(dir, "files")), os.MkdirAll(filepath.Join(dir, "files"), 0o700), os.WriteFile(filepath.Join(dir, "files", "a.txt"), []byte("one\nline\n"), 0o600)} {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			place()
			server := m.name + "="
			for _, word := range m.env {
				server += strings.ReplaceAll(word, "{dir}", filepath.Join(dir, "files")) + " "
			}
			for _, word := range m.command {
				server += "'" + strings.ReplaceAll(word, "{dir}", filepath.Join(dir, "files")) + "' "
			}
			recorded := m.hold(t, dir, "--db", "rec.db", "--timeout", "60s", "--server", server)
			if err := os.RemoveAll(filepath.Join(dir, "files")); err != nil {
				t.Fatal(err)
			}
			for range 2 { // each session begins anew
				again := m.hold(t, dir, "--replay", "rec.db")
				for i := range max(len(recorded), len(again)) {
					if i >= min(len(recorded), len(again)) || recorded[i] != again[i] {
						t.Fatalf("answer %d of %d and %d is\n%.900s\nand then\n%.900s", i, len(recorded), len(again), recorded[i], again[i])
					}
				}
			}
			place()
			verify := exec.CommandContext(t.Context(), "starling-host", "mcp", "verify", "rec.db", "--server", server, "--server-set", m.name+": timeout=60s", "--all", "-o", "json")
			verify.Dir, verify.Env = dir, append(os.Environ(), "XDG_CONFIG_HOME="+dir)
			out, err := verify.Output()
			var v struct {
				Changes []any
				Runs    struct {
					Same, Skipped int
					Differ        []struct{ Divergence struct{ Field string } }
				}
			}
			if json.Unmarshal(out, &v) != nil || len(v.Changes) > 0 || v.Runs.Same == 0 || v.Runs.Same+v.Runs.Skipped < len(recorded)*2/3 {
				t.Errorf("%v: %s", err, out)
			}
			for _, d := range v.Runs.Differ {
				if d.Divergence.Field != "structuredContent.connections[0].createdAt" { // of mongodb
					t.Errorf("%v: %s", err, out)
				}
			}
		})
	}
}
