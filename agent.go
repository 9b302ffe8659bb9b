package starling

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/tool"
)

// AgentOptions configure how an agent runs. The zero value follows the agent's file.
type AgentOptions struct {
	// Policy limits the agent's tools. Nil uses the policy of the agent's file.
	Policy *policy.Policy
	// Secrets returns the secrets that the policy names. Nil is [EnvSecrets].
	Secrets policy.Secrets
	// Files are the files of runs that begin: each call gets them as the one before has left them. A run that
	// is resumed has those that it began with. Nil for none.
	Files *Files
}

// Agent is an agent ready to run. [DB.Close] closes it.
type Agent struct {
	// Agent drives the runs. Its fields can be changed before the first one.
	*agent.Agent

	db        *DB
	box       *agentfile.Toolbox
	rules     *policy.Run // nil without a policy
	variables []byte
}

// OpenAgent opens the agent of a file, agent.yaml. It finds the tools, stores their modules,
// and starts or connects to the MCP servers that the file names.
func (db *DB) OpenAgent(ctx context.Context, path string, o AgentOptions) (*Agent, error) {
	file, err := agentfile.Load(path)
	if err != nil {
		return nil, err
	}
	return db.OpenAgentFile(ctx, file, o)
}

// OpenAgentFile is [DB.OpenAgent] for a parsed file.
func (db *DB) OpenAgentFile(ctx context.Context, file *agentfile.File, o AgentOptions) (*Agent, error) {
	model, err := file.Provider(ctx, os.Getenv)
	if err != nil {
		return nil, err
	}
	log, err := db.Log(ctx)
	if err != nil {
		return nil, err
	}
	engine, err := db.engine.start(ctx)
	if err != nil {
		return nil, err
	}
	a := &Agent{db: db, variables: file.Variables, rules: rulesOf(o.Policy, o.Secrets)}
	loader, err := (&ModuleLoader{Engine: engine, Store: log, Files: log, Policy: a.rules, Finder: db.Finder()}).For(file)
	if err != nil {
		return nil, err
	}
	if a.box, err = file.OpenTools(ctx, loader, os.Getenv); err != nil {
		return nil, err
	}
	a.Agent = file.Agent(model, a.box)
	a.Log, a.Metrics, a.Tracer, a.Config.AppVersion, a.Config.Commit = log, db.o.Metrics, db.o.Tracer, db.o.AppVersion, db.o.Receipts.Committing()
	if db.o.Logger != nil {
		a.Config.Logger = db.o.Logger
	}
	if a.rules != nil {
		a.Tools = lists.Map(a.box.Tools, a.rules.Guard)
	}
	if o.Files != nil && len(o.Files.given.Mounts) > 0 {
		a.Workspace = &o.Files.given
	}
	db.opened(a, func() { a.box.Close() })
	return a, nil
}

// Close releases the tools of the agent. Its runs must have ended.
func (a *Agent) Close() { a.db.closeOne(a) }

// context adds the policy and the variables to the context of a run's tools.
func (a *Agent) context(ctx context.Context) (context.Context, error) {
	if a.rules != nil {
		ctx = policy.With(ctx, a.rules)
	}
	return tool.WithVariablesJSON(ctx, a.variables)
}

// Run gives the model a goal, lets it work with tools until it answers, and records
// everything. Its results are those of [agent.Agent.RunWithID].
func (a *Agent) Run(ctx context.Context, goal string) (*agent.Result, error) {
	ctx, err := a.context(ctx)
	if err != nil {
		return nil, err
	}
	return a.Agent.Run(ctx, goal)
}

// Stream is [Agent.Run] with a channel: it returns the id of the run and its progress, see
// [agent.Agent.RunStream].
func (a *Agent) Stream(ctx context.Context, goal string) (string, <-chan agent.AgentEvent, error) {
	ctx, err := a.context(ctx)
	if err != nil {
		return "", nil, err
	}
	return a.Agent.RunStream(ctx, goal)
}

// Resume continues an open run, see [agent.Agent.ResumeWith]. A message that is not empty
// is added to the conversation first.
func (a *Agent) Resume(ctx context.Context, runID, message string, opts ...agent.ResumeOption) (<-chan agent.AgentEvent, error) {
	if a.rules != nil {
		earlier, err := a.Log.Read(ctx, runID)
		if err == nil {
			err = a.rules.Resume(earlier)
		}
		if err != nil {
			return nil, err
		}
	}
	ctx, err := a.context(ctx)
	if err != nil {
		return nil, err
	}
	return a.Agent.ResumeStream(ctx, runID, message, opts...)
}

// openReplayingAgent opens an agent for replays. It needs no key, because a replay does not
// ask the model, and does not store its modules.
func openReplayingAgent(ctx context.Context, path string, engine guest.Engine, db *DB, files eventlog.ModuleReader) (*Agent, error) {
	file, err := agentfile.Load(path)
	if err != nil {
		return nil, err
	}
	model, err := file.Provider(ctx, func(name string) string { return cmp.Or(os.Getenv(name), "unused") })
	if err != nil {
		return nil, err
	}
	loader, err := (&ModuleLoader{Engine: engine, Files: files, Finder: db.Finder()}).For(file)
	if err != nil {
		return nil, err
	}
	box, err := file.OpenToolsForReplay(ctx, loader, os.Getenv)
	if err != nil {
		return nil, err
	}
	return &Agent{Agent: file.Agent(model, box), box: box}, nil
}

// replaying returns the agent for the replay of a run: with the recorded tools of the
// servers that cannot be reached.
func (a *Agent) replaying(ctx context.Context, events []event.Event, resolve agent.Resolver) (*agent.Agent, error) {
	started, err := events[0].AsRunStarted()
	if err != nil {
		return nil, err
	}
	now := *a.Agent
	now.Tools, now.Config.Retries = slices.Clone(now.Tools), maps.Clone(now.Config.Retries)
	for _, ref := range started.ToolSchemas {
		retry, misses := a.box.Misses(ref)
		if !misses {
			continue
		}
		t, err := resolve(ctx, ref)
		if err != nil {
			return nil, err
		}
		if now.Tools = append(now.Tools, t); retry != nil {
			now.Config.Retries[ref.Name] = *retry
		}
	}
	return &now, nil
}

// ModuleLoader is an [agentfile.Loader] that loads modules into one engine. It stores them
// first, so that a run can be replayed from the database alone.
type ModuleLoader struct {
	Engine guest.Engine
	Store  eventlog.ModuleStore  // nil stores nothing
	Files  eventlog.ModuleReader // has the files of calls; nil for none
	Policy *policy.Run           // nil: each module has the hosts that its entry allows
	Finder artifact.Finder

	// Stored receives the modules that were stored, by digest, unless it is nil.
	Stored map[canon.Hash][]byte
}

// For returns the loader with what the file of an agent says about modules, unless its finder says
// it: the lock file beside the agent's file, and the trust file that it names.
func (l *ModuleLoader) For(file *agentfile.File) (*ModuleLoader, error) {
	made := *l
	made.Finder.Lock = cmp.Or(l.Finder.Lock, filepath.Join(filepath.Dir(file.Path), artifact.LockName))
	var err error
	if file.Trust != "" && l.Finder.Trust == nil {
		made.Finder.Trust, err = artifact.LoadTrust(file.Trust)
	}
	return &made, err
}

// LoadModule implements [agentfile.Loader].
func (l *ModuleLoader) LoadModule(ctx context.Context, m agentfile.Module) ([]tool.Tool, func() error, error) {
	source, err := l.Finder.Find(ctx, m.Path)
	if err != nil {
		return nil, nil, err
	}
	if l.Store != nil {
		digest, err := l.Store.PutModule(ctx, source.Wasm)
		if err != nil {
			return nil, nil, err
		}
		if l.Stored != nil {
			l.Stored[digest] = source.Wasm
		}
	}
	limits := sandbox.Limits(m.Limits)
	if l.Policy != nil {
		limits = sandbox.Limits(l.Policy.Narrow(event.SandboxLimits(sandbox.WithDefaults(limits))))
	}
	module, err := load(ctx, l.Engine, source, limits, m.AllowHosts, m.AllowPrivate)
	if err != nil {
		return nil, nil, err
	}
	var tools []tool.Tool
	for _, t := range module.Tools() {
		t = t.In(l.Files)
		if l.Policy != nil {
			t = t.Under(l.Policy)
		}
		if m.Code {
			t = t.Calling()
		}
		tools = append(tools, t)
	}
	return tools, func() error { return module.Close(context.Background()) }, nil
}
