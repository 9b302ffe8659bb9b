package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// Tools are tools of modules on this machine and of MCP servers, for one user of a
// [Service]. Each call is a run in the database. While the tools are served, a module is
// reloaded when its files change, and the client is notified. Tools are safe for
// concurrent use.
type Tools struct {
	// Folders are given to the calls of tools that look for files, as they are when a call begins. What a call has
	// changed is written back when it has completed. Set them before the tools are served.
	Folders []starling.Folder

	folders sync.Mutex // held while they are read or written

	db      *starling.DB
	options starling.ToolOptions
	warn    func(text string)

	mu       sync.RWMutex
	modules  []*module  // guarded by mu
	sessions []*session // likewise
	reloads  uint64     // of modules; likewise

	begun map[string]*begun // runs that are being made, by id; guarded by mu

	known     []known        // set before the tools are served, and so are the next three
	recording *Recording     // empty without Replay
	code      *starling.Tool // nil without AddCode
	inCode    string         // the language of its programs
	once      sync.Once      // sets common
	common    *session       // has the shared connections; nil before the first session
	reloading sync.Mutex
	refused   map[string]uint64 // stamps of files that cannot be loaded, already reported; guarded by reloading
}

// module is a loaded module or a server. It is immutable.
type module struct {
	ref    string // as the user named it
	stamp  uint64 // of its files; zero for a server
	closed bool   // its tools cannot reach the network
	tools  []*starling.Tool
	calls  sync.WaitGroup // increases only while the module is in Tools
}

// NewTools returns an empty set of tools with these options. It calls warn if a module
// cannot be reloaded; its tools then stay as they were.
func NewTools(db *starling.DB, o starling.ToolOptions, warn func(text string)) *Tools {
	return &Tools{db: db, options: o, warn: warn, recording: &Recording{}, refused: map[string]uint64{}, begun: map[string]*begun{}}
}

// replayOf returns the command that replays a run.
func (l *Tools) replayOf(runID string) string {
	return "starling-host replay " + l.db.Name() + " " + runID
}

// Close ends all sessions and calls. Call it before closing the database.
func (l *Tools) Close() {
	l.leave()
	l.mu.Lock()
	all := append(slices.Clone(l.sessions), l.common)
	l.mu.Unlock()
	for _, s := range all {
		if s != nil {
			s.Close()
		}
	}
}

// Add loads the module of a reference, see [starling.DB.Load], and adds its tools. If Load
// fails or a name is taken, it adds none.
func (l *Tools) Add(ctx context.Context, ref string) error {
	return l.load(ctx, ref, nil)
}

// AddCode replaces all tools by the one that runs programs in a language, "javascript" or
// "python", which can call them. With more than [tool.MaxDeclared] tools, the client also gets
// search_tools. Call AddCode before the tools are served.
func (l *Tools) AddCode(ctx context.Context, language string) (err error) {
	l.inCode = language
	l.code, err = l.db.Load(ctx, agentfile.Programs[language], l.options)
	return err
}

// load loads a module in place of another one, or appends it for nil.
func (l *Tools) load(ctx context.Context, ref string, old *module) error {
	added := &module{ref: ref, stamp: guest.Stamp(ref)}
	m, err := l.db.LoadModule(ctx, ref, l.options)
	if err != nil {
		return err
	}
	added.closed = !slices.Contains(m.Imports(), abi.Version+"."+abi.ImportHTTP) || len(l.options.AllowHosts) == 0 && l.options.Policy == nil
	added.tools = m.All(l.options)
	if err := l.place(added, old); err != nil {
		m.Close()
		return err
	}
	if old != nil {
		go func() { // its last call may take long
			old.calls.Wait()
			old.tools[0].Close()
		}()
	}
	return nil
}

// place puts a module in place of another one, or appends it for nil.
func (l *Tools) place(added, old *module) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.modules {
		for _, t := range added.tools {
			if other != old && other.tool(t.Name()) != nil {
				return fmt.Errorf("its tool %q is also a tool of %s", t.Name(), other.ref)
			}
		}
	}
	if old == nil {
		l.modules = append(l.modules, added)
		return nil
	}
	if i := slices.Index(l.modules, old); i >= 0 {
		l.modules[i] = added
		l.reloads++
	}
	return nil
}

func (m *module) tool(name string) *starling.Tool {
	if i := slices.IndexFunc(m.tools, func(t *starling.Tool) bool { return t.Name() == name }); i >= 0 {
		return m.tools[i]
	}
	return nil
}

// FindsFiles reports whether a tool looks for the files of Folders.
func (l *Tools) FindsFiles() bool {
	if l.code != nil {
		return l.code.FindsFiles()
	}
	return slices.ContainsFunc(l.current(), func(m *module) bool { return slices.ContainsFunc(m.tools, (*starling.Tool).FindsFiles) })
}

// Len returns the number of modules and servers.
func (l *Tools) Len() int { return len(l.current()) + len(l.known) }

func (l *Tools) current() []*module {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Clone(l.modules)
}

// current are the modules and servers of the session.
func (l *session) current() []*module {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.all()
}

// all is current for a caller that holds mu.
func (l *session) all() []*module {
	all := slices.Clone(l.modules)
	for _, s := range l.servers {
		if s.module != nil {
			all = append(all, s.module)
		}
	}
	return all
}

// List implements [mcpsrv.Tools].
func (l *session) List(context.Context) ([]mcpsrv.Tool, error) {
	var list []mcpsrv.Tool
	if len(l.servers) > 0 {
		list = append(list, mcpsrv.Tool{Name: listServers, Description: l.aboutServers(), InputSchema: []byte(`{"type":"object"}`), Idempotent: true, Closed: true, Brief: true})
	}
	if l.code != nil {
		others := l.callable()
		reaches := slices.ContainsFunc(l.current(), func(m *module) bool { return !m.closed })
		told := mcpsrv.ToolOf(l.code.Describe(), !reaches)
		told.Declarations, told.Changes = l.aboutFiles(l.code)
		told.Idempotent = told.Closed && !told.Changes
		told.Declarations += tool.Declarations(l.inCode, others...)
		list = append(list, told)
		if len(others) > tool.MaxDeclared {
			search := tool.Search()
			list = append(list, mcpsrv.Tool{
				Name: search.Name(), Description: search.Description(), InputSchema: search.Schema(), Idempotent: true, Closed: true, Brief: true,
			})
		}
		return list, nil
	}
	for _, m := range l.current() {
		for _, t := range m.tools {
			told := mcpsrv.ToolOf(t.Describe(), m.closed)
			told.Declarations, told.Changes = l.aboutFiles(t)
			told.Idempotent, told.Brief = told.Idempotent || m.closed && !told.Changes, len(l.recording.calls) > 0
			if said, ok := t.Definition(); ok {
				told.Exact, told.Remote = renamed(said.Exact, func(string) string { return t.Name() }), true
			}
			list = append(list, told)
		}
	}
	return append(list, slices.DeleteFunc(slices.Clone(l.recording.shown), func(t mcpsrv.Tool) bool { return l.has(t.Name) })...), nil
}

// aboutFiles tells a model where a tool finds files, and whether it can change some.
func (l *session) aboutFiles(t *starling.Tool) (text string, changes bool) {
	for _, f := range l.Folders {
		if t.FindsFiles() {
			may := map[bool]string{true: "change", false: "only read"}[f.Writable]
			changes = changes || f.Writable
			text += fmt.Sprintf("\n\nThe user's files are in %s. The tool can %s them.", cmp.Or(f.At, starling.DefaultMount), may)
		}
	}
	return text, changes
}

// callable returns the tools that programs may call.
func (l *session) callable() (all []tool.Tool) {
	for _, m := range l.current() {
		for _, t := range m.tools {
			all = append(all, t)
		}
	}
	return all
}

// Call implements [mcpsrv.Tools].
func (l *session) Call(ctx context.Context, c mcpsrv.Call) (mcpsrv.Result, error) {
	if l.code != nil && c.Name == tool.SearchName {
		output, err := tool.Search(l.callable()...).Execute(ctx, c.Arguments)
		if _, bad := errors.AsType[*tool.InputError](err); err != nil && !bad {
			err = fmt.Errorf("%w: %w", mcpsrv.ErrRefused, err)
		}
		return mcpsrv.Result{Output: output}, err
	}
	if len(l.servers) > 0 && c.Name == listServers {
		output, err := json.Marshal(l.states())
		return mcpsrv.Result{Output: output}, err
	}
	if c.Method != "" {
		return l.request(ctx, c)
	}
	if result, ok, err := l.replayed(ctx, c, []string{c.Name}); ok {
		return result, err
	}
	t, leave := l.enter(c.Name)
	if t == nil {
		return mcpsrv.Result{}, mcpsrv.ErrNoTool
	}
	runID := starling.NewRunID()
	b := l.begin(ctx, runID, func(ctx context.Context) (mcpsrv.Result, error) {
		defer leave()
		return l.run(ctx, runID, t, c)
	})
	<-b.done
	l.forget(runID)
	return b.result, b.err
}

// run makes a recorded run of a call.
func (l *session) run(ctx context.Context, runID string, t *starling.Tool, c mcpsrv.Call) (result mcpsrv.Result, err error) {
	input, err := t.Input(c.Arguments)
	if err != nil {
		return mcpsrv.Result{}, err
	}
	var files *starling.Files
	if len(l.Folders) > 0 && t.FindsFiles() {
		l.folders.Lock()
		files, err = l.db.Files(ctx, l.Folders...)
		l.folders.Unlock()
		if err != nil {
			return mcpsrv.Result{}, fmt.Errorf("%w: %s", mcpsrv.ErrHost, starling.PlainError(err))
		}
		t = t.In(files)
	}
	_, remote := t.Definition()
	if c.Through != nil {
		through := within(runID, c.Through)
		if remote {
			through.Answered = func(answer, refused json.RawMessage) { result.Answer, result.Refused = answer, refused }
		}
		ctx = mcptool.For(ctx, through)
	}
	if remote { // the server sends its own
		c.Progress = nil
	}
	finish := l.reportProgress(ctx, runID, c.Progress)
	run, err := t.CallAs(ctx, runID, input)
	finish(run != nil)
	if run == nil {
		if ctx.Err() == nil { // the user of these tools may see everything of this host
			err = fmt.Errorf("%w: %s", mcpsrv.ErrHost, starling.PlainError(err))
		}
		return mcpsrv.Result{}, err
	}
	result.RunID, result.Output, result.Log = run.ID, run.Result, run.Log
	result.Replay = l.replayOf(run.ID)
	result.Remote, result.Receipt = remote, l.receipt(ctx, run.ID)
	if err == nil && files != nil {
		result.Changed, result.Unwritten = l.writeBack(ctx, files, run.ID)
	}
	if err != nil {
		result.Error = err.Error()
		if run.Failure != nil && run.Failure.Message != "" {
			result.Error = run.Tool + ": " + run.Failure.Message
		}
	}
	return result, nil
}

// writeBack changes the folders as a run left its files. It returns the files there that are new or changed,
// for links, and what a model is told if the folders are not changed. The run has ended, whoever waits.
func (l *Tools) writeBack(ctx context.Context, files *starling.Files, runID string) (links []string, unwritten string) {
	l.folders.Lock()
	changed, err := files.WriteBack(context.WithoutCancel(ctx), runID)
	l.folders.Unlock()
	if err != nil {
		unwritten = l.unwritten(err, runID)
	}
	for _, path := range changed { // those that were removed are not found
		_ = filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				links = append(links, path)
			}
			if err != nil || len(links) == mcpsrv.MaxLinks {
				return fs.SkipAll
			}
			return nil
		})
	}
	return links, unwritten
}

// unwritten tells a model that the changes of a call are not in the user's folder.
func (l *Tools) unwritten(why error, runID string) string {
	return fmt.Sprintf("The call has succeeded, but: %v. Its files: starling-host workspace get %s %s FOLDER", why, l.db.Name(), runID)
}

// traceparent is a place in a trace, in the form of W3C.
var traceparent = lazy.Regexp(`^"(00-[0-9a-f]{32}-)[0-9a-f]{16}(-[0-9a-f]{2})"$`)

// within returns a call whose place in the client's trace is the run: the digits of its span are those of
// the hash of its id.
func within(runID string, c *mcptool.Call) *mcptool.Call {
	inner := *c
	parts := traceparent().FindSubmatch(c.Meta["traceparent"])
	if parts == nil {
		return &inner
	}
	inner.Meta = maps.Clone(c.Meta)
	inner.Meta["traceparent"] = fmt.Appendf(nil, `"%s%s%s"`, parts[1], canon.Sum([]byte(runID)).String()[:16], parts[2])
	return &inner
}

// receipt returns the receipt of the call that a run makes, or nil. The run has its result in any case.
func (l *session) receipt(ctx context.Context, runID string) *receipt.Receipt {
	all, err := l.db.Receipts(context.WithoutCancel(ctx), runID)
	if err != nil && !errors.Is(err, starling.ErrNoReceipts) {
		l.warn("run " + runID + " has no receipt: " + starling.PlainError(err))
	}
	return receipt.OfCall(all, "")
}

// reportProgress calls progress, unless it is nil, for each effect of a run. finish waits
// for the end of a run that has ended.
func (l *session) reportProgress(ctx context.Context, runID string, progress func(what string)) (finish func(ended bool)) {
	log, err := l.db.Log(ctx)
	if progress == nil || err != nil { // the run fails as well
		return func(bool) {}
	}
	ctx, stop := context.WithCancel(ctx)
	events, err := log.Stream(ctx, runID)
	if err != nil {
		stop()
		return func(bool) {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev := range events {
			if effect, err := ev.AsSideEffectRecorded(); err == nil && effect.IsHostCall() {
				progress(effect.Name)
			}
		}
	}()
	return func(ended bool) {
		if !ended {
			stop()
		}
		<-done
		stop()
	}
}

// enter returns a tool, which stays open until leave, or nil.
func (l *session) enter(name string) (t *starling.Tool, leave func()) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.code != nil {
		if name != l.code.Name() {
			return nil, nil
		}
		var others []*starling.Tool
		modules := l.all()
		for _, m := range modules {
			m.calls.Add(1)
			others = append(others, m.tools...)
		}
		return l.code.Calling(others...), func() {
			for _, m := range modules {
				m.calls.Done()
			}
		}
	}
	for _, m := range l.all() {
		if t := m.tool(name); t != nil {
			m.calls.Add(1)
			return t, m.calls.Done
		}
	}
	return nil, nil
}

// Cancel implements [mcpsrv.Tools]. No other process can wait for a call.
func (l *session) Cancel(context.Context, string) error { return nil }

// watchTime is the interval between checks of files.
const watchTime = time.Second

// Watch implements [mcpsrv.Mirror].
func (l *session) Watch(ctx context.Context, changed func(), notice func(text string)) {
	l.mu.RLock()
	seen := l.reloads
	l.mu.RUnlock()
	ticker := time.Tick(watchTime)
	for {
		select {
		case <-ctx.Done():
			return
		case text := <-l.notices:
			notice(text)
			continue
		case <-l.changed:
			changed()
			continue
		case <-ticker:
		}
		l.reload(ctx)
		l.review()
		l.mu.RLock()
		now := l.reloads
		l.mu.RUnlock()
		if now != seen {
			seen = now
			changed()
		}
	}
}

// reload loads the modules whose files have changed.
func (l *Tools) reload(ctx context.Context) {
	l.reloading.Lock()
	defer l.reloading.Unlock()
	for _, m := range l.current() {
		stamp := guest.Stamp(m.ref)
		if stamp == m.stamp || stamp == l.refused[m.ref] {
			continue
		}
		if err := l.load(ctx, m.ref, m); err != nil && ctx.Err() == nil {
			l.refused[m.ref] = stamp
			l.warn(fmt.Sprintf("%s has changed and stays as it was: %s", m.ref, strings.TrimPrefix(starling.PlainError(err), m.ref+": ")))
		}
	}
}
