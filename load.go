package starling

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// ToolOptions configure how a tool runs. With the zero value it has no network access and
// the limits of [sandbox.DefaultLimits].
type ToolOptions struct {
	// Name selects one of several tools in the module.
	Name string

	// Limits bound each call. Zero fields are the defaults.
	Limits sandbox.Limits

	// Sidecar is the text of a sidecar (spec/sidecar.schema.json), which names, describes and
	// bounds the tools. It becomes a section of the module, in place of one that it has. An
	// empty one, {}, replaces none, and makes a WASI command without one take arguments. A .wasm
	// file has the sidecar that lies beside it.
	Sidecar []byte

	// AllowHosts are the hosts that the tool may reach, as HOST or HOST:PORT. Addresses
	// that are not public also need AllowPrivate.
	AllowHosts   []string
	AllowPrivate bool

	// Policy replaces AllowHosts, and also decides about arguments, limits and secrets. Nil
	// for none.
	Policy *policy.Policy
	// Secrets returns the secrets that the policy names. Nil is [EnvSecrets].
	Secrets policy.Secrets
}

// The references of the built-in tools that run programs written by a model, in JavaScript and in
// Python. The programs can call the tools of [Tool.Calling].
const (
	RunJS = "run_js"
	RunPy = "run_py"
)

// Tool is a loaded tool of a module or a server. It is safe for concurrent use. [DB.Close]
// closes it.
type Tool struct {
	tool.Tool // without the rules of a policy, see ForRun

	db      *DB
	guest   *guest.Tool // nil for a tool of a server
	module  *Module     // nil likewise
	said    *mcptool.Definition
	most    uint64 // bytes of an input of a tool of a server
	policy  *policy.Policy
	secrets policy.Secrets
	others  []*Tool
	files   *Files
}

// tool returns a tool of the module with the options of its loading.
func (m *Module) tool(t *guest.Tool, o ToolOptions) *Tool {
	return &Tool{Tool: t, db: m.db, guest: t, module: m, policy: o.Policy, secrets: o.Secrets}
}

// Calling returns the tool with the right to call the others, for tools such as [RunJS] and [RunPy]. Each
// nested call is recorded in the run of its caller, under the options of the tool called. If two
// tools have the same name, the later one is called.
func (t *Tool) Calling(others ...*Tool) *Tool {
	calling := *t
	calling.guest = t.guest.Calling()
	calling.Tool, calling.others = calling.guest, others
	return &calling
}

// ForRun implements [agent.PerRun]: in a run the tool has the rules of its policy and files from the log,
// and the log has its module.
func (t *Tool) ForRun(ctx context.Context, log eventlog.EventLog, earlier []event.Event) (tool.Tool, error) {
	modules, ok := log.(eventlog.ModuleStore)
	if ok && t.module != nil {
		if err := t.module.store(ctx, modules); err != nil {
			return nil, err
		}
	}
	ready, rules := t.Tool, rulesOf(t.policy, t.secrets)
	if t.guest != nil {
		ready = t.guest.In(modules).Under(rules)
	}
	if rules == nil {
		return ready, nil
	}
	return rules.Guard(ready), rules.Resume(earlier)
}

// Execute fails for a tool with a policy: without [Tool.ForRun] the policy would not apply.
func (t *Tool) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	if t.policy != nil {
		return nil, tool.ToolCancel(fmt.Errorf("the tool %q has a policy, which a wrapper around it would bypass: give the agent the tool itself", t.Name()))
	}
	return t.Tool.Execute(ctx, input)
}

// Unwrap implements [tool.Wrapper].
func (t *Tool) Unwrap() tool.Tool { return t.Tool }

// Sandbox returns the module and limits of the tool, or nil for a tool of a server.
func (t *Tool) Sandbox() *event.Sandbox { return tool.SandboxOf(t.Tool) }

// Definition returns the server's definition of the tool. It reports false for a tool of a
// module.
func (t *Tool) Definition() (mcptool.Definition, bool) {
	if t.said == nil {
		return mcptool.Definition{}, false
	}
	return *t.said, true
}

// Describe returns the tool's own description.
func (t *Tool) Describe() abi.ToolDescription {
	if t.guest != nil {
		return t.guest.Describe()
	}
	return abi.ToolDescription{Name: t.Name(), Description: t.Description(), InputSchema: abi.JSON(t.Schema()), OutputSchema: abi.JSON(t.said.Output)}
}

// Close releases the module of the tool, for programs that load many tools. Calls of all
// tools of the module must have returned. A tool of a server is closed with its server.
func (t *Tool) Close() {
	if t.module != nil {
		t.module.Close()
	}
}

// Module is a loaded module. [DB.Close] closes it.
type Module struct {
	*guest.Module
	Source guest.Source
	db     *DB
}

// Close releases the module. Calls of its tools must have returned.
func (m *Module) Close() { m.db.closeOne(m) }

// store stores the module in a log that does not have it yet: storing hashes the whole module,
// which can take longer than a call.
func (m *Module) store(ctx context.Context, log eventlog.ModuleStore) error {
	stored, err := log.HasModule(ctx, m.Digest())
	if err == nil && !stored {
		_, err = log.PutModule(ctx, m.Source.Wasm)
	}
	return err
}

// Load finds a module and prepares one of its tools. Ref is the path of a .wasm file, of a file
// in Python, or of a folder with a tool in Go, TypeScript, JavaScript, Python, Rust, C or AssemblyScript, which
// Load builds first, oci://REGISTRY/NAME:TAG, oci-layout:FOLDER:TAG or
// https://HOST/FILE.wasm@sha256:DIGEST (see package artifact), the hexadecimal digest of a module
// in the database, [RunJS] or [RunPy].
//
// The error is a [*guest.SourceError] if the module is missing or does not build, an
// [*artifact.Error] if it cannot be fetched or is not the one that was pinned or signed, a
// [*sandbox.Refusal] or a [*guest.DescriptionError] if it is refused, and a
// [*NotFoundError] if it does not have the tool.
func (db *DB) Load(ctx context.Context, ref string, o ToolOptions) (*Tool, error) {
	m, err := db.LoadModule(ctx, ref, o)
	if err != nil {
		return nil, err
	}
	return m.Choose(o)
}

// LoadBytes is [DB.Load] for the bytes of a module. The name is used if it is a WASI
// command.
func (db *DB) LoadBytes(ctx context.Context, name string, wasm []byte, o ToolOptions) (*Tool, error) {
	engine, err := db.engine.start(ctx)
	if err != nil {
		return nil, err
	}
	source, err := guest.FromBytes(ctx, engine, name, bytes.Clone(wasm), nil)
	if err == nil {
		err = db.o.Finder.Check(name, source.Wasm, nil)
	}
	if err != nil {
		return nil, err
	}
	m, err := db.loadModule(ctx, source, o)
	if err != nil {
		return nil, err
	}
	return m.Choose(o)
}

// LoadModule is [DB.Load] for all tools of a module.
func (db *DB) LoadModule(ctx context.Context, ref string, o ToolOptions) (*Module, error) {
	source, err := db.Source(ctx, ref)
	if err != nil {
		return nil, err
	}
	m, err := db.loadModule(ctx, source, o)
	if failed, ok := errors.AsType[*guest.DescriptionError](err); ok {
		failed.Script = placedAt(ref, failed.Script)
	}
	return m, err
}

// placedAt makes the place of an error in a script, such as tool.py:3:5, that of the file as the
// user calls it.
func placedAt(ref, script string) string {
	file, rest, found := strings.Cut(script, ":")
	path := ref
	if filepath.Base(ref) != file {
		path = filepath.Join(ref, file)
	}
	if _, err := os.Stat(path); !found || err != nil {
		return script
	}
	return path + ":" + rest
}

// Source finds a module by its name, as [DB.Load] does, without loading it.
func (db *DB) Source(ctx context.Context, ref string) (guest.Source, error) {
	return db.Finder().Find(ctx, ref)
}

// Finder returns what finds modules for the database: [Options.Finder], and the modules of the
// database by their digests.
func (db *DB) Finder() artifact.Finder {
	f := db.o.Finder
	if f.Modules == nil {
		f.Modules = func(ctx context.Context) (eventlog.ModuleReader, error) { return db.Log(ctx) }
	}
	return f
}

func (db *DB) loadModule(ctx context.Context, source guest.Source, o ToolOptions) (*Module, error) {
	engine, err := db.engine.start(ctx)
	if err != nil {
		return nil, err
	}
	if o.Sidecar != nil {
		if source, err = source.WithSidecar("sidecar", o.Sidecar); err != nil {
			return nil, err
		}
	}
	limits := o.Limits
	if o.Policy != nil {
		limits = sandbox.Limits(policy.Narrow(event.SandboxLimits(sandbox.WithDefaults(limits)), o.Policy))
	}
	m, err := load(ctx, engine, source, limits, o.AllowHosts, o.AllowPrivate)
	if err != nil {
		return nil, err
	}
	loaded := &Module{Module: m, Source: source, db: db}
	db.opened(loaded, func() { m.Close(context.Background()) })
	return loaded, nil
}

// load loads a module whose tools may reach only these hosts or, without hosts, only those that
// a policy allows. The error may be an [*AllowError].
func load(ctx context.Context, engine guest.Engine, source guest.Source, limits sandbox.Limits, hosts []string, private bool) (*guest.Module, error) {
	rules := egress.Rules{Private: private}
	for _, host := range hosts {
		rule, err := egress.ParseRule(host)
		if err != nil {
			return nil, &AllowError{Host: host, Err: err}
		}
		rules.Allow = append(rules.Allow, rule)
	}
	var reach egress.Config
	if len(hosts) > 0 {
		reach.Authorize = rules
	}
	return guest.Load(ctx, engine, source.Wasm, guest.Options{Name: source.Name, Limits: limits, Egress: egress.New(reach), Allow: hosts})
}

// Choose returns the tool that the options name, or the only one. The options must be those
// of the loading, except for the name. The error is a [*NotFoundError].
func (m *Module) Choose(o ToolOptions) (*Tool, error) {
	tools := m.Tools()
	for _, t := range tools {
		if t.Name() == o.Name || o.Name == "" && len(tools) == 1 {
			return m.tool(t, o), nil
		}
	}
	all := strings.Join(lists.Map(tools, (*guest.Tool).Name), ", ")
	if o.Name == "" {
		return nil, &NotFoundError{What: "tool", Reason: "the module holds several tools: " + all, Hint: "choose one with --tool NAME"}
	}
	return nil, &NotFoundError{What: "tool", Name: o.Name, Reason: fmt.Sprintf("the module has no tool %q, it has: %s", o.Name, all)}
}

// All returns all tools of the module. The options must be those of the loading.
func (m *Module) All(o ToolOptions) []*Tool {
	return lists.Map(m.Tools(), func(t *guest.Tool) *Tool { return m.tool(t, o) })
}

// EnvSecrets reads secrets from environment variables: NAME from STARLING_SECRET_NAME.
type EnvSecrets struct{}

// Secret implements [policy.Secrets].
func (EnvSecrets) Secret(_ context.Context, name string) ([]byte, bool, error) {
	value, ok := os.LookupEnv("STARLING_SECRET_" + name)
	return []byte(value), ok, nil
}

// Input parses an input of the tool for [Tool.CallAs]. The error is an [*InputError], which wraps a
// [*canon.SyntaxError] if the input is not JSON, and a [*tool.SchemaError] if it does not match the schema
// of the tool.
func (t *Tool) Input(doc []byte) (*canon.Doc, error) {
	input, err := step.ParseInput(doc, nil)
	if err != nil {
		return nil, err
	}
	return input, t.checkInput(input)
}

func (t *Tool) checkInput(input *canon.Doc) error {
	if t.guest != nil {
		return t.guest.CheckInput(input)
	}
	if bad := tool.CheckInput(nil, input, int(min(t.most, math.MaxInt)), false); bad != nil {
		return bad
	}
	return nil
}
