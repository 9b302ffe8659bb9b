package starling_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// probe is the tool that the matrix of features makes runs of, in Go for the sandbox.
const probe = `package main

import (
	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/typed"
)

type input struct {
	Amount int    ` + "`json:\"amount\"`" + `
	URL    string ` + "`json:\"url,omitempty\"`" + `
	Spin   bool   ` + "`json:\"spin,omitempty\"`" + `
}

func init() {
	starling.Register(typed.Tool("probe", "Does what it is asked to.", func(_ *starling.Call, in input) (int, error) {
		if in.URL != "" {
			if _, err := starling.Do(starling.Request{Method: "GET", URL: in.URL, Header: starling.Header{{"Authorization", "Bearer {{secret:TOKEN}}"}}}); err != nil {
				return 0, err
			}
		}
		for in.Spin {
		}
		return in.Amount, nil
	}))
}

func main() {}
`

// asked is what a run of the matrix is asked to do.
type asked struct {
	Amount int    `json:"amount"`
	URL    string `json:"url,omitempty"`
	Spin   bool   `json:"spin,omitempty"`
}

// conditions are those under which a run of the matrix is made. A zero one has no rules.
type conditions struct {
	policy  string
	secrets policy.Secrets
	limits  sandbox.Limits
}

// makes makes one run of a kind of tool, and returns its id and why its tool failed.
type makes func(ctx context.Context, a asked) (id string, err error)

// matrix is what all runs of a test share.
type matrix struct {
	db        *starling.DB
	replayers map[starling.EngineKind]*starling.Replayer
	folder    string // of the tool's source
	module    string // the same, built
	server    string // the address of an MCP server with the tool
}

// kinds are the kinds of tools, each as a run of the probe.
var kinds = map[string]func(t *testing.T, m *matrix, c conditions) makes{
	"module": func(t *testing.T, m *matrix, c conditions) makes { return calls(t, load(t, m, m.module, c), nil) },
	"folder": func(t *testing.T, m *matrix, c conditions) makes { return calls(t, load(t, m, m.folder, c), nil) },
	"run_js": func(t *testing.T, m *matrix, c conditions) makes {
		return calls(t, load(t, m, starling.RunJS, c), program(`const { amount, url, spin } = input;
			if (url) await fetch(url, { headers: { Authorization: "Bearer {{secret:TOKEN}}" } }); while (spin); return amount`))
	},
	"nested": func(t *testing.T, m *matrix, c conditions) makes {
		return calls(t, load(t, m, starling.RunJS, conditions{}).Calling(load(t, m, m.module, c)), program(`return await tools.probe(input)`))
	},
	"server's": func(t *testing.T, m *matrix, c conditions) makes {
		s, err := m.db.Connect(t.Context(), starling.ServerOptions{MCP: agentfile.MCP{URL: m.server}, Policy: rules(t, c)})
		if err != nil {
			t.Fatal(err)
		}
		return calls(t, s.Tools()[0], nil)
	},
	"native": func(t *testing.T, m *matrix, c conditions) makes {
		native := tool.Typed("probe", "Does what it is asked to.", func(ctx context.Context, a asked) (int, error) {
			return step.SideEffect(ctx, "work", func() (int, error) { return a.Amount, work(ctx, a) })
		})
		if c.policy != "" {
			native = policy.NewRun(rules(t, c), nil, c.secrets).Guard(native)
		}
		return func(ctx context.Context, a asked) (string, error) {
			id := starling.NewRunID()
			input, _ := json.Marshal(a)
			_, err := agent.Direct{Log: starling.Must(m.db.Log(ctx)), Tool: native}.RunWithID(ctx, id, input)
			return id, orFailure(ctx, m, id, err)
		}
	},
	"agent": func(t *testing.T, m *matrix, c conditions) makes {
		one := load(t, m, m.module, c)
		return func(ctx context.Context, a asked) (string, error) {
			input, _ := json.Marshal(a)
			model := agenttest.ScriptedProvider{Turns: []agenttest.Turn{agenttest.Call("1", "probe", string(input)), agenttest.Say("done")}}
			id := starling.NewRunID()
			_, err := (&agent.Agent{
				Provider: model, Log: starling.Must(m.db.Log(ctx)), Tools: []tool.Tool{one}, Config: agent.Config{Model: "m"},
			}).RunWithID(ctx, id, "Probe.")
			return id, orFailure(ctx, m, id, err)
		}
	},
}

// work is what the probe does where no sandbox is around it.
func work(ctx context.Context, a asked) error {
	if a.URL != "" {
		resp, err := http.Get(a.URL)
		if err != nil {
			return err
		}
		resp.Body.Close()
	}
	if a.Spin {
		<-ctx.Done()
	}
	return ctx.Err()
}

func rules(t *testing.T, c conditions) *policy.Policy {
	t.Helper()
	if c.policy == "" {
		return nil
	}
	p, err := policy.Parse("policy.yaml", []byte(c.policy))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func load(t *testing.T, m *matrix, ref string, c conditions) *starling.Tool {
	t.Helper()
	one, err := m.db.Load(t.Context(), ref, starling.ToolOptions{Policy: rules(t, c), Secrets: c.secrets, Limits: c.limits})
	if err != nil {
		t.Fatal(err)
	}
	return one
}

// program turns what is asked into the input of run_js.
func program(code string) func(json.RawMessage) json.RawMessage {
	return func(input json.RawMessage) json.RawMessage {
		doc, _ := json.Marshal(map[string]any{"code": code, "input": input})
		return doc
	}
}

func calls(t *testing.T, one *starling.Tool, input func(json.RawMessage) json.RawMessage) makes {
	return func(ctx context.Context, a asked) (string, error) {
		doc, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if input != nil {
			doc = input(doc)
		}
		id := starling.NewRunID()
		in, err := one.Input(doc)
		if err == nil {
			_, err = one.CallAs(ctx, id, in)
		}
		return id, err
	}
}

// orFailure returns err, or how the first tool of a run has failed: an agent goes on then.
func orFailure(ctx context.Context, m *matrix, id string, err error) error {
	for ev, broken := range m.db.Events(context.WithoutCancel(ctx), id) {
		if broken != nil {
			return broken
		}
		if failed, no := ev.AsToolCallFailed(); no == nil {
			return fmt.Errorf("%s: %s", failed.ErrorType, failed.Error)
		}
	}
	return err
}

// hosts is a policy that lets the probe, or the program that stands for it, reach a server.
func hosts(server string, tools string) string {
	host := strings.TrimPrefix(server, "http://")
	name, port, _ := strings.Cut(host, ":")
	return fmt.Sprintf(`
version: "1.0"
permissions:
  tools: {%s}
  network:
    allow: [{host: %q, schemes: [http], ports: [%s], private: true}]
secrets: [{name: TOKEN, audience: [%q], header: Authorization}]
`, tools, name, port, host)
}

type oneSecret struct{}

func (oneSecret) Secret(context.Context, string) ([]byte, bool, error) {
	return []byte("s3cr3t-value-of-the-token"), true, nil
}

// features are what is asked of every kind of tool. A feature returns how its run ended, and
// its own check has failed if it has called t.Error. A kind that is in refused cannot do it,
// for the reason there, which users are told.
var features = []struct {
	name    string
	refused map[string]string
	run     func(t *testing.T, m *matrix, kind func(t *testing.T, m *matrix, c conditions) makes, name string) (id string)
}{
	{"policy on arguments", nil, func(t *testing.T, m *matrix, kind func(*testing.T, *matrix, conditions) makes, name string) string {
		c := conditions{policy: "version: \"1.0\"\npermissions:\n  tools:\n    probe: {arguments: {type: object, properties: {amount: {type: number, maximum: 10}}}}\n    run_js: {arguments: {type: object, properties: {input: {type: object, properties: {amount: {type: number, maximum: 10}}}}}}\n"}
		if _, err := kind(t, m, c)(t.Context(), asked{Amount: 10}); err != nil {
			t.Errorf("an allowed call: %v", err)
		}
		id, err := kind(t, m, c)(t.Context(), asked{Amount: 11})
		if err == nil || !strings.Contains(err.Error(), "amount") {
			t.Errorf("a denied call: %v", err)
		}
		return id
	}},
	{"ask", nil, func(t *testing.T, m *matrix, kind func(*testing.T, *matrix, conditions) makes, name string) string {
		c := conditions{policy: "version: \"1.0\"\npermissions:\n  tools: {probe: {ask: true}, run_js: {ask: true}}\n"}
		if _, err := kind(t, m, c)(t.Context(), asked{Amount: 1}); err == nil || !strings.Contains(err.Error(), "ask") {
			t.Errorf("with nobody to ask: %v", err)
		}
		var question string
		answer := func(with string) context.Context {
			return policy.WithAsker(t.Context(), func(_ context.Context, q policy.Question) (string, error) {
				question = q.Text
				return with, nil
			})
		}
		if _, err := kind(t, m, c)(answer(policy.Decline), asked{Amount: 1}); err == nil {
			t.Error("declined, and called")
		}
		id, err := kind(t, m, c)(answer(policy.Accept), asked{Amount: 4711})
		if err != nil || !strings.Contains(question, "4711") {
			t.Errorf("accepted: %v, asked %q", err, question)
		}
		return id
	}},
	{"secret", map[string]string{
		"server's": "a server sends its own requests: spec/policy.md",
		"native":   "Go code sends its own requests: spec/policy.md",
	}, func(t *testing.T, m *matrix, kind func(*testing.T, *matrix, conditions) makes, name string) string {
		var got string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.Header.Get("Authorization")
			io.WriteString(w, "you are "+got)
		}))
		defer s.Close()
		id, err := kind(t, m, conditions{policy: hosts(s.URL, `"*": {}`), secrets: oneSecret{}})(t.Context(), asked{Amount: 1, URL: s.URL + "/"})
		if err != nil || got != "Bearer s3cr3t-value-of-the-token" {
			t.Errorf("%v, the server got %q", err, got)
		}
		for ev, err := range m.db.Events(t.Context(), id) {
			if err != nil || bytes.Contains(ev.Payload, []byte("s3cr3t")) {
				t.Errorf("%v, event %d has the secret: %.200q", err, ev.Seq, ev.Payload)
			}
		}
		return id
	}},
	{"limits", map[string]string{
		"server's": "a server is in no sandbox: SECURITY.md",
		"native":   "Go code is in no sandbox: docs/embed.md",
	}, func(t *testing.T, m *matrix, kind func(*testing.T, *matrix, conditions) makes, name string) string {
		id, err := kind(t, m, conditions{limits: sandbox.Limits{Fuel: 30_000_000}})(t.Context(), asked{Spin: true})
		if err == nil || !strings.Contains(err.Error(), "fuel") {
			t.Errorf("got %v", err)
		}
		return id
	}},
	{"cancel", nil, func(t *testing.T, m *matrix, kind func(*testing.T, *matrix, conditions) makes, name string) string {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.AfterFunc(10*time.Millisecond, cancel) // whenever it comes, the run has begun and ends by it
		}))
		defer s.Close()
		c := conditions{policy: hosts(s.URL, `"*": {}`), secrets: oneSecret{}, limits: sandbox.Limits{Fuel: 1e12}}
		id, err := kind(t, m, c)(ctx, asked{Spin: true, URL: s.URL + "/"})
		if err == nil {
			t.Error("the call has ended by itself")
		}
		if run, err := starling.Must(m.db.Log(t.Context())).Run(t.Context(), id); err != nil || run.TerminalKind != event.KindRunCancelled {
			t.Errorf("the run ended with %v, %v", run.TerminalKind, err)
		}
		return id
	}},
}

// refuses reports whether a replay says that only the program with the tool can make it.
func refuses(err error) bool { return err != nil && strings.Contains(err.Error(), "is not a module") }

// after is what is done with each recorded run, whatever its kind: it works, or the reason is
// part of the error.
func after(t *testing.T, m *matrix, kind, id string) {
	native := kind == "native"
	if v, err := m.db.Validate(t.Context(), id); err != nil || v.Err != nil {
		t.Errorf("validate: %v, %v", v.Err, err)
	}
	for engine, r := range m.replayers {
		v, err := r.Replay(t.Context(), id)
		if err != nil || refuses(v.Refused) != native || !native && !v.Identical() {
			t.Errorf("replay by the %s: %v, %v, refused: %v", engine, v, err, v.Refused)
		}
	}
	key := starling.Must(seal.NewKey("example.com/matrix/" + id))
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := store.Fork(t.Context(), filepath.Join(m.folder, "..", "matrix.db"), copied, id, 0); err != nil {
		t.Fatal(err)
	}
	other := starling.Must(starling.Open(t.Context(), copied, starling.Options{}))
	defer other.Close()
	if sealed, err := other.Seal(t.Context(), key); err != nil || sealed.Checkpoint.Leaves == 0 {
		t.Fatalf("seal: %v", err)
	}
	bundle, err := other.Bundle(t.Context(), id)
	if err != nil {
		t.Fatalf("bundle: %v", err)
	}
	file := starling.Must(bundle.Bytes())
	v, err := starling.VerifyBundle(t.Context(), file, starling.BundleOptions{Policy: starling.Must(seal.Trust(key.VKey()))})
	if err != nil || v.Invalid != nil || !v.Sealed || v.Identical() == native {
		t.Errorf("verify: %v, %v, sealed %t, %v", v.Invalid, err, v.Sealed, v.Runs)
	}
	log := starling.Must(other.Log(t.Context()))
	var archive bytes.Buffer
	one := eventlog.PruneOptions{RunIDs: []string{id}}
	if _, err := store.WriteArchive(t.Context(), &archive, log, one); err != nil {
		t.Fatalf("archive: %v", err)
	}
	into := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "into.db"), starling.Options{}))
	defer into.Close()
	if _, err := store.ImportArchive(t.Context(), starling.Must(into.Log(t.Context())), bytes.NewReader(archive.Bytes())); err != nil {
		t.Fatalf("import: %v", err)
	}
	if v, err := into.Replay(t.Context(), id); native != refuses(err) || !native && (err != nil || !v.Identical()) {
		t.Errorf("replay of the imported run: %v, %v", v, err)
	}
	if report, err := log.PruneRuns(t.Context(), one); err != nil || report.Runs != 1 {
		t.Errorf("prune: %v, %v", report, err)
	}
}

// killed cuts a run behind its scheduled call, as a crash does, and resumes it.
func killed(t *testing.T, m *matrix, kind string, id string) {
	cut := filepath.Join(t.TempDir(), "cut.db")
	var before uint64
	for ev, err := range m.db.Events(t.Context(), id) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == event.KindToolCallScheduled {
			before = ev.Seq + 1
			break
		}
	}
	if err := store.Fork(t.Context(), filepath.Join(m.folder, "..", "matrix.db"), cut, id, before); err != nil {
		t.Fatal(err)
	}
	db := starling.Must(starling.Open(t.Context(), cut, starling.Options{}))
	defer db.Close()
	if v, err := db.Replay(t.Context(), id); (kind == "native") != refuses(err) || kind != "native" && (err != nil || !v.Identical() || !v.Open) {
		t.Errorf("replay of an open run: %v, %v", v, err)
	}
	log := starling.Must(db.Log(t.Context()))
	one := starling.Must(db.Load(t.Context(), m.module, starling.ToolOptions{}))
	a := &agent.Agent{
		Provider: agenttest.ScriptedProvider{Turns: []agenttest.Turn{agenttest.Call("1", "probe", `{"amount":1}`), agenttest.Say("done")}}, Log: log,
		Tools: []tool.Tool{one}, Config: agent.Config{Model: "m"},
	}
	_, err := a.Resume(t.Context(), id, "")
	if kind != "agent" {
		if err == nil || !strings.Contains(err.Error(), "no model") {
			t.Errorf("a direct call was resumed: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatalf("resume: %v", err)
	}
	if v, err := db.Replay(t.Context(), id); err != nil || !v.Identical() {
		t.Errorf("replay of a resumed run: %v, %v", v, err)
	}
}

// TestFeaturesComposeWithEveryKindOfTool asks everything of every kind of tool: each cell
// works, or is refused for a reason that the table has.
func TestFeaturesComposeWithEveryKindOfTool(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: makes some hundred runs")
	}
	served := mcp.NewServer(&mcp.Implementation{Name: "probe"}, nil)
	mcp.AddTool(served, &mcp.Tool{Name: "probe", Description: "Does what it is asked to."},
		func(ctx context.Context, _ *mcp.CallToolRequest, a asked) (*mcp.CallToolResult, any, error) {
			return nil, map[string]int{"amount": a.Amount}, work(ctx, a)
		})
	address := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return served }, nil))
	defer address.Close()

	m := &matrix{folder: treetest.Outside(t), server: address.URL}
	if err := os.WriteFile(filepath.Join(m.folder, "main.go"), []byte(probe), 0o600); err != nil {
		t.Fatal(err)
	}
	m.db = starling.Must(starling.Open(t.Context(), filepath.Join(m.folder, "..", "matrix.db"), starling.Options{}))
	defer m.db.Close()
	m.replayers = map[starling.EngineKind]*starling.Replayer{}
	for _, engine := range []starling.EngineKind{starling.Compiler, starling.Machine} {
		r := starling.Must(m.db.Replayer(t.Context(), starling.ReplayOptions{Engine: starling.EngineOptions{Kind: engine}}))
		defer r.Close()
		m.replayers[engine] = r
	}
	built := starling.Must(m.db.LoadModule(t.Context(), m.folder, starling.ToolOptions{}))
	m.module = filepath.Join(t.TempDir(), "probe.wasm")
	if err := os.WriteFile(m.module, built.Source.Wasm, 0o600); err != nil {
		t.Fatal(err)
	}

	names := slices.Sorted(func(yield func(string) bool) {
		for name := range kinds {
			if !yield(name) {
				return
			}
		}
	})
	for _, name := range names {
		for _, f := range features {
			t.Run(name+"/"+f.name, func(t *testing.T) {
				if reason, ok := f.refused[name]; ok {
					if page := reason[strings.LastIndex(reason, " ")+1:]; treetest.Read(t, page) == "" {
						t.Errorf("%s does not exist", page)
					}
					return
				}
				if id := f.run(t, m, kinds[name], name); !t.Failed() {
					after(t, m, name, id)
				}
			})
		}
		t.Run(name+"/kill and resume", func(t *testing.T) {
			id, err := kinds[name](t, m, conditions{})(t.Context(), asked{Amount: 1})
			if err != nil {
				t.Fatal(err)
			}
			killed(t, m, name, id)
		})
	}
}
