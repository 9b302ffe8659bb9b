package agentfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

// serverVariable makes this test binary a server with a tool that tells its
// environment and its folder.
const serverVariable = "AGENTFILE_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) == "" {
		os.Exit(m.Run())
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "test"}, nil)
	dir, _ := os.Getwd()
	described := fmt.Sprintf("%s in %s, %v", os.Getenv("GREETING"), filepath.Base(dir), os.Getenv("AGENTFILE_SECRET"))
	for _, name := range []string{"one", "two"} {
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: described}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, nil
		})
	}
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
}

// fakeLoader is a Loader of modules that are not there: the names of their tools are
// the words of their file names.
type fakeLoader struct {
	loaded   []Module
	released []string
}

func (s *fakeLoader) LoadModule(_ context.Context, m Module) ([]tool.Tool, func() error, error) {
	name := filepath.Base(m.Path)
	if name == "broken" {
		return nil, nil, errShelf
	}
	s.loaded = append(s.loaded, m)
	var tools []tool.Tool
	for _, word := range strings.Split(name, "-") {
		tools = append(tools, boxed{tool.Typed(word, "", func(context.Context, struct{}) (int, error) { return 1, nil })})
	}
	return tools, func() error {
		s.released = append(s.released, name)
		return nil
	}, nil
}

var errShelf = errors.New("it does not load")

type boxed struct{ tool.Tool }

func (boxed) Sandbox() *event.Sandbox { return &event.Sandbox{ABI: "test"} }

func open(t *testing.T, s *fakeLoader, tools string, getenv func(string) string) (*Toolbox, error) {
	t.Helper()
	f, err := Parse("testdata/agent.yaml", []byte("provider: {script: s}\ntools:\n"+tools))
	if err != nil {
		t.Fatal(err)
	}
	return f.OpenTools(t.Context(), s, getenv)
}

func names(tools []tool.Tool) (list []string) {
	for _, t := range tools {
		list = append(list, t.Name())
	}
	return list
}

func TestOpenTools(t *testing.T) {
	var s fakeLoader
	box, err := open(t, &s, `
  - a-b
  - {wasm: /x/c-d, name: d, rename: e, retry: {max_attempts: 5}, allow_hosts: [h], fuel: 7}
  - {builtin: fetch}
  - {builtin: read_file, dir: ., rename: read, retry: {}}
`, env())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "e", "fetch", "read"}, names(box.Tools)); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]tool.RetryConfig{"e": {MaxAttempts: 5}, "read": {}}, box.Retries); diff != "" {
		t.Errorf("retries (-want +got):\n%s", diff)
	}
	want := []Module{{Path: "testdata/a-b"}, {Path: "/x/c-d", Tool: "d", Rename: "e", AllowHosts: []string{"h"}, Limits: event.SandboxLimits{Fuel: 7}}}
	if diff := cmp.Diff(want, s.loaded); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
	if tool.SandboxOf(box.Tools[2]) == nil {
		t.Error("a tool has lost its sandbox with its name")
	}
	for range 2 {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"c-d", "a-b"}, s.released); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
}

func TestOpenToolsErrors(t *testing.T) {
	for name, c := range map[string]struct{ tools, want string }{
		"two of the same name": {"  - a-b\n  - c-b", `testdata/agent.yaml:4:5: testdata/c-b has a tool "b", and so has testdata/a-b (testdata/agent.yaml:3:5)
  4 |   - c-b
    |     ^
hint: give one of them another name with rename, or prefix for a server`},
		"a name that was given away": {"  - {builtin: fetch, rename: a}\n  - a", `testdata/agent.yaml:4:5: testdata/a has a tool "a", and so has the built-in fetch (testdata/agent.yaml:3:5)
  4 |   - a
    |     ^
hint: give one of them another name with rename, or prefix for a server`},
		"no such tool": {"  - {wasm: a-b, name: c}", `testdata/agent.yaml:3:5: the module has no tool "c"
  3 |   - {wasm: a-b, name: c}
    |     ^
hint: it has a, b`},
		"one name for two": {"  - {wasm: a-b, rename: c}", `testdata/agent.yaml:3:5: the module has 2 tools, but only one name for them
  3 |   - {wasm: a-b, rename: c}
    |     ^
hint: choose one with the key name, and make an entry of each`},
		"what does not load":  {"  - a\n  - broken", "testdata/agent.yaml:4:5: it does not load"},
		"a folder that is no": {"  - {builtin: read_file, dir: none}", "testdata/agent.yaml:3:5: builtin: open testdata/none: no such file or directory"},
		"a variable that is not set": {"  - mcp: {command: [a], env: {A: '${B}c'}}", `testdata/agent.yaml:3:5: env.A needs the environment variable B, which is not set
  3 |   - mcp: {command: [a], env: {A: '${B}c'}}
    |     ^`},
	} {
		t.Run(name, func(t *testing.T) {
			var s fakeLoader
			_, err := open(t, &s, c.tools, env())
			if diff := cmp.Diff(c.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(s.loaded) != len(s.released) {
				t.Errorf("loaded %v, released %v", s.loaded, s.released)
			}
			if strings.Contains(name, "load") && !errors.Is(err, errShelf) {
				t.Error("the loader's error is lost")
			}
		})
	}
}

// TestServer starts this test binary as a server. It gets what the file says, and
// no more of this process than it needs.
func TestServer(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	entry := fmt.Sprintf(`
  - mcp:
      command: [%q]
      env: {%s: "1", GREETING: "$WORD, $$1"}
      prefix: s_
      exclude: [two]
    retry: {max_attempts: 4}
`, self, serverVariable)
	getenv := func(name string) string {
		if name == "WORD" {
			return "hello"
		}
		return os.Getenv(name)
	}
	t.Setenv("AGENTFILE_SECRET", "a secret")
	box, err := open(t, &fakeLoader{}, entry, getenv)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"s_one"}, names(box.Tools)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if got := box.Tools[0].Description(); got != "hello, $1 in testdata, " {
		t.Errorf("the server has %q", got)
	}
	if box.Retries["s_one"].MaxAttempts != 4 {
		t.Errorf("retries: %v", box.Retries)
	}
	if err := box.Close(); err != nil {
		t.Error(err)
	}
	if _, err := open(t, &fakeLoader{}, "  - mcp: {command: ["+filepath.Join(t.TempDir(), "none")+"]}", getenv); err == nil ||
		!strings.HasPrefix(err.Error(), "testdata/agent.yaml:3:5: mcptool: connect: ") {
		t.Errorf("a program that is not there: %v", err)
	}
}
