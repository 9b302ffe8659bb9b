package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// Agent lets a model work with tools until it answers. Provider, Log and Config.Model are
// required. It keeps no state of a run: agents of the same configuration, even in different
// processes, can continue each other's runs. It is safe for concurrent use.
type Agent struct {
	// Provider connects to the model. A replay uses only its Info.
	Provider provider.Provider

	// Tools are offered to the model, in this order. Names are unique.
	Tools []tool.Tool

	// Log receives the events of live runs.
	Log eventlog.EventLog

	// Config has the prompt and the settings of runs.
	Config Config

	// Budget bounds what one run may spend. The zero value bounds nothing.
	Budget budget.Limits

	// Namespace is the prefix of run ids, followed by a slash. Empty by default; it must
	// not contain a slash itself.
	Namespace string

	// Workspace names the files of runs, see [step.Config]. The log must have their contents. Nil for none.
	Workspace *event.Workspace

	// Metrics and Tracer watch live runs. Nil for neither.
	Metrics *observe.Metrics
	Tracer  *observe.Tracer

	// direct makes the agent call its one tool with the input, without a model: see
	// [Direct].
	direct bool
	input  json.RawMessage
	doc    *canon.Doc // the parsed input

	// fromSeed makes RunStarted as the Starling runtime wrote it: without the order of tools and the
	// bound on turns. It is set for replays of its runs.
	fromSeed bool
}

// Config has the settings that all runs of an [Agent] share.
type Config struct {
	Model        string
	SystemPrompt string

	// Params are provider-specific options, a CBOR map ([canon.Marshal]) or nil.
	Params canon.Raw

	// Request fields that every provider knows, see [provider.Request].
	ToolChoice      string
	StopSequences   []string
	TopK            *int
	MaxOutputTokens int

	// MaxTurns fails the run if the model wants to continue after this many turns. Zero
	// means no bound.
	MaxTurns int

	// ModelAttempts bounds the attempts at a turn whose request fails temporarily. Zero
	// means 3.
	ModelAttempts int

	// Retries has the policies for failed calls by tool. Calls of other tools are not
	// repeated.
	Retries map[string]tool.RetryConfig

	// MaxParallelTools bounds the calls that run at a time. Zero means
	// [step.DefaultMaxParallelTools].
	MaxParallelTools int

	// ToolTimeout bounds an attempt at a native tool, see step.Config.
	ToolTimeout time.Duration

	// Prices replace the process's price table, see step.Config.
	Prices Prices

	// RequireRawResponseHash refuses answers without a hash of the raw response.
	RequireRawResponseHash bool

	// AppVersion is the version of the program around this library. It is recorded for
	// information.
	AppVersion string

	// Commit is as in [step.Config].
	Commit func(first, scheduled event.Event) ([]byte, error)

	// EmitTimeout bounds each write of an event. Zero means no bound.
	EmitTimeout time.Duration

	// InCode names tools that only the model's programs call, see [step.CallFrom]; the
	// model itself does not see them. Nil for none.
	InCode []string

	// SkipSchemaCheck skips the check of the log's layout.
	SkipSchemaCheck bool

	// Logger receives messages about runs, see [step.Config]. Nil discards them.
	Logger *slog.Logger

	// ClockFn reads the wall clock; nil means time.Now. It must be safe for
	// concurrent use.
	ClockFn func() time.Time
}

// defaultModelAttempts replaces a Config.ModelAttempts of zero.
const defaultModelAttempts = 3

// Errors of an agent that cannot run.
var (
	errNoProvider = errors.New("starling: Agent.Provider is nil")
	errNoLog      = errors.New("starling: Agent.Log is nil")
	errNoModel    = errors.New("starling: Agent.Config.Model is empty")
)

// Validate checks the configuration of the agent. A replay needs no Log.
func (a *Agent) Validate() error {
	if !a.direct && a.Provider != nil && a.Log == nil {
		return errNoLog
	}
	return a.validate()
}

func (a *Agent) validate() error {
	switch {
	case a.direct:
		return nil
	case a.Provider == nil:
		return errNoProvider
	case a.Config.Model == "":
		return errNoModel
	case strings.Contains(a.Namespace, "/"):
		return fmt.Errorf("starling: Agent.Namespace %q contains a slash", a.Namespace)
	case a.Config.MaxTurns < 0:
		return fmt.Errorf("starling: Agent.Config.MaxTurns is %d, want 0 or more", a.Config.MaxTurns)
	case !utf8.ValidString(a.Config.SystemPrompt):
		return errors.New("starling: Agent.Config.SystemPrompt is not UTF-8")
	}
	return errors.Join(a.Budget.Validate(), a.validateTools())
}

func (a *Agent) validateTools() error {
	seen := map[string]bool{}
	for _, t := range a.Tools {
		switch {
		case t == nil:
			return errors.New("starling: one of Agent.Tools is nil")
		case t.Name() == "":
			return errors.New("starling: one of Agent.Tools has no name")
		case seen[t.Name()]:
			return fmt.Errorf("starling: two of Agent.Tools are called %q", t.Name())
		}
		seen[t.Name()] = true
	}
	for name, retry := range a.Config.Retries {
		if err := retry.Check(); err != nil {
			return fmt.Errorf("starling: Agent.Config.Retries[%q]: %w", name, err)
		}
	}
	return nil
}

// PerRun is a tool that is made anew for each run, for instance to store its module in the
// log or to count the run's use of a policy.
type PerRun interface {
	tool.Tool

	// ForRun returns the tool for a run of the log with these events so far. The log is nil
	// for a replay.
	ForRun(ctx context.Context, log eventlog.EventLog, earlier []event.Event) (tool.Tool, error)
}

// prepared returns the agent with its tools for one run. A [PerRun] inside another tool is
// prepared too, and stays in its place.
func (a *Agent) prepared(ctx context.Context, log eventlog.EventLog, earlier []event.Event) (*Agent, error) {
	ready := *a
	ready.Tools = slices.Clone(a.Tools)
	for i, t := range a.Tools {
		p, ok := tool.Inside[PerRun](t)
		if !ok {
			continue
		}
		made, err := p.ForRun(ctx, log, earlier)
		if err != nil {
			return nil, fmt.Errorf("starling: tool %q: %w", t.Name(), err)
		}
		if _, itself := t.(PerRun); itself {
			ready.Tools[i] = made
		}
	}
	return &ready, nil
}

// info identifies the provider, if there is one.
func (a *Agent) info() provider.Info {
	if a.Provider == nil {
		return provider.Info{}
	}
	return a.Provider.Info()
}

// started is the first event of a run.
func (a *Agent) started(goal string) event.RunStarted {
	if a.direct {
		refs := lists.Map(a.Tools, ToolRef)
		return event.RunStarted{
			SchemaVersion: event.SchemaVersion, Goal: a.Tools[0].Name(), ToolSchemas: refs, ToolRegistryHash: event.RegistryHash(refs),
			StarlingVersion: Version(), AppVersion: a.Config.AppVersion,
		}
	}
	info := a.info()
	refs := a.toolRefs()
	started := event.RunStarted{
		SchemaVersion: event.SchemaVersion, Goal: goal,
		ProviderID: info.ID, ModelID: a.Config.Model, APIVersion: info.APIVersion,
		Params: a.Config.Params, SystemPrompt: a.Config.SystemPrompt,
		ToolSchemas: refs, ToolRegistryHash: event.RegistryHash(refs),
		Budget: a.Budget.Event(), MaxTurns: uint32(a.Config.MaxTurns), Request: a.Config.requestOptions(),
		StarlingVersion: Version(), AppVersion: a.Config.AppVersion, Workspace: a.Workspace,
	}
	if a.fromSeed {
		started.MaxTurns = 0
	}
	if len(started.Params) > 0 {
		started.ParamsHash = hashOf(started.Params)
	}
	if started.SystemPrompt != "" {
		started.SystemPromptHash = hashOf([]byte(started.SystemPrompt))
	}
	return started
}

// toolRefs identifies the tools, sorted by name, with their positions in the model's list.
func (a *Agent) toolRefs() []event.ToolSchemaRef {
	byName := func(x, y event.ToolSchemaRef) int { return strings.Compare(x.Name, y.Name) }
	refs := lists.Map(a.Tools, a.toolRef)
	if slices.IsSortedFunc(refs, byName) {
		return refs
	}
	for i := range refs {
		if !a.fromSeed {
			refs[i].Position = uint32(i + 1)
		}
	}
	slices.SortFunc(refs, byName)
	return refs
}

// inOrder returns the agent with its tools in the order of the recorded run, whichever order the program
// lists them in. The list in RunStarted is sorted, and has positions where that is not the order of the
// model's list. Runs of the Starling runtime have no positions at all: the hash of their first request tells
// whether their tools were in the program's order.
func (a *Agent) inOrder(recorded []event.Event, started event.RunStarted) *Agent {
	place, positions := map[string]int{}, false
	for i, ref := range started.ToolSchemas {
		place[ref.Name] = i + 1
		if ref.Position > 0 {
			place[ref.Name], positions = int(ref.Position), true
		}
	}
	ordered := *a
	if !positions && a.sentFirst(recorded, started) {
		ordered.fromSeed = !slices.IsSortedFunc(a.Tools, func(x, y tool.Tool) int { return strings.Compare(x.Name(), y.Name()) })
		return &ordered
	}
	ordered.Tools = slices.Clone(a.Tools)
	slices.SortStableFunc(ordered.Tools, func(x, y tool.Tool) int { return cmp.Compare(place[x.Name()], place[y.Name()]) })
	return &ordered
}

// sentFirst reports whether the agent would send the first recorded request, with its tools in their present order.
func (a *Agent) sentFirst(recorded []event.Event, started event.RunStarted) bool {
	for _, ev := range recorded {
		if turn, err := ev.AsTurnStarted(); err == nil {
			again := *a
			again.Config.Model = started.ModelID
			hash, err := again.request(again.begin(started.Goal).messages).Hash()
			return err == nil && bytes.Equal(hash[:], turn.PromptHash)
		}
	}
	return false
}

// ToolRef returns the reference of a tool in RunStarted.
func ToolRef(t tool.Tool) event.ToolSchemaRef {
	ref := event.ToolSchemaRef{
		Name: t.Name(), SchemaHash: hashOf(t.Schema()), DescriptionHash: hashOf([]byte(t.Description())),
		Sandbox: tool.SandboxOf(t), Source: tool.SourceOf(t),
	}
	if ref.Source != "" && ref.Sandbox == nil {
		ref.Description, ref.Schema = t.Description(), string(t.Schema())
	}
	return ref
}

func hashOf(b []byte) []byte {
	h := canon.Sum(b)
	return h[:]
}

// toolRef identifies a tool in RunStarted. For a Go function it has the same fields as the
// Starling runtime.
func (a *Agent) toolRef(t tool.Tool) event.ToolSchemaRef {
	ref := ToolRef(t)
	ref.InCode = slices.Contains(a.Config.InCode, t.Name())
	if ref.Sandbox == nil {
		ref.DescriptionHash = nil // the prompt's hash covers the description
	}
	if retry, ok := a.Config.Retries[t.Name()]; ok {
		ref.Attempts = uint32(retry.Attempts())
	}
	return ref
}

// requestOptions returns the recorded options of the request, nil if none is set.
func (c *Config) requestOptions() *event.RequestOptions {
	o := event.RequestOptions{ToolChoice: c.ToolChoice, StopSequences: c.StopSequences, MaxOutputTokens: int64(c.MaxOutputTokens)}
	if c.TopK != nil {
		k := int64(*c.TopK)
		o.TopK = &k
	}
	if o.ToolChoice == "" && len(o.StopSequences) == 0 && o.TopK == nil && o.MaxOutputTokens == 0 {
		return nil
	}
	return &o
}

// request is the next request to the model.
func (a *Agent) request(messages []provider.Message) *provider.Request {
	req := &provider.Request{
		Model: a.Config.Model, SystemPrompt: a.Config.SystemPrompt, Messages: messages,
		ToolChoice: a.Config.ToolChoice, StopSequences: a.Config.StopSequences,
		TopK: a.Config.TopK, MaxOutputTokens: a.Config.MaxOutputTokens, Params: a.Config.Params,
	}
	for _, t := range a.Tools {
		if slices.Contains(a.Config.InCode, t.Name()) {
			continue
		}
		req.Tools = append(req.Tools, provider.ToolDefinition{Name: t.Name(), Description: t.Description(), Schema: t.Schema()})
	}
	return req
}

// stepConfig returns the settings that live runs and replays share.
func (a *Agent) stepConfig(runID string) step.Config {
	return step.Config{
		RunID: runID, Tools: step.NewRegistry(a.Tools...), Provider: a.Provider, ModelAttempts: cmp.Or(a.Config.ModelAttempts, defaultModelAttempts),
		RequireRawResponseHash: a.Config.RequireRawResponseHash, Budget: a.Budget, Prices: a.Config.Prices,
		MaxParallelTools: a.Config.MaxParallelTools, ToolTimeout: a.Config.ToolTimeout, Logger: a.Config.Logger,
	}
}

// live completes the configuration of a live run.
func (a *Agent) live(c step.Config, o step.Observer, t *observe.RunTrace) step.Config {
	c.Workspace = a.Workspace
	c.Log, c.ClockFn, c.EmitTimeout, c.Commit, c.Observer = a.Log, a.Config.ClockFn, a.Config.EmitTimeout, a.Config.Commit, o
	if a.Metrics != nil {
		c.Metrics = a.Metrics
	}
	if t != nil {
		c.Tracer = t
	}
	return c
}

// newRunID mints the id of a run.
func (a *Agent) newRunID() string {
	if a.Namespace == "" {
		return event.NewID()
	}
	return a.Namespace + "/" + event.NewID()
}

func (a *Agent) clock() time.Time {
	if a.Config.ClockFn == nil {
		return time.Now()
	}
	return a.Config.ClockFn()
}

// preflight checks that this program can write to the log.
func (a *Agent) preflight(ctx context.Context) error {
	if a.Config.SkipSchemaCheck {
		return nil
	}
	return eventlog.Preflight(ctx, a.Log)
}

// modulePath is the module that this package belongs to.
const modulePath = "github.com/starling-host/starling"

// Version returns the version of this module in the running program, the revision that a program of the
// module was built from, or "(devel)". It is recorded in every run, for the reader.
func Version() string {
	const unknown = "(devel)"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == modulePath && m.Version != "" && m.Version != unknown {
			return m.Version
		}
	}
	for _, s := range info.Settings {
		if info.Main.Path == modulePath && s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return unknown
}

// Budget bounds the spending of one run, BudgetExceeded is the error of a run that spent
// it, BudgetMeter counts, and Prices are the prices of tokens.
type (
	Budget         = budget.Limits
	BudgetExceeded = budget.Exceeded
	BudgetMeter    = budget.Meter
	Prices         = budget.Prices
	Price          = budget.Price
	Rates          = budget.Rates
)

// ResumeBudget returns a meter with the spending of a run's events.
func ResumeBudget(b Budget, events []event.Event) (*BudgetMeter, error) {
	return budget.Resume(b, events)
}

// Cost returns the cost of an answer in US dollars, and whether the price of the model is
// known.
func Cost(model string, u provider.Usage) (usd float64, known bool) { return budget.Cost(model, u) }

// BuiltinPrices returns the prices that this version knows.
func BuiltinPrices() Prices { return budget.Builtin() }

// RegisterPricing sets the price of a model for this process, in US dollars for a million
// tokens.
func RegisterPricing(model string, inPerMtok, outPerMtok float64) {
	budget.RegisterPricing(model, inPerMtok, outPerMtok)
}
