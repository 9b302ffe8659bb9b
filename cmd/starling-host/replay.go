package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/verifier"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/host/debug"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/profile"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
)

type replayFlags struct {
	all    bool
	module string
	engine string
	agent  string
	force  bool

	timeout time.Duration // of each run; zero for none

	profile string
}

func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := readCommand("replay [DB] RUN", "execute a run again and compare every event", func(ctx context.Context, log database, args []string) error { return a.replay(ctx, log, args, f) }, a.outputFlag)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if !f.all && len(args) == 0 || f.all && len(args) > 1 {
			return usagef(cmd.CommandPath()+" --help", "replay: name one RUN, or --all")
		}
		return arguments(cmd, args)
	}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case f.agent != "" && f.module != "", f.force && f.agent == "":
			return usagef("", "replay: --agent and --module exclude each other, and --force requires --agent")
		case f.timeout < 0:
			return usagef("", "replay: --timeout must be 0 or more")
		case f.all && f.profile != "":
			return usagef("", "replay: --profile requires one RUN")
		case f.engine == engineV8 && (f.agent != "" || f.module != "" || f.profile != ""):
			return usagef("", "replay: --engine v8 excludes --agent, --module and --profile: it replays runs as they were recorded")
		}
		return nil
	}
	cmd.Flags().BoolVar(&f.all, "all", false, "replay every run of the database, on all processors")
	cmd.Flags().StringVar(&f.module, "module", "", "replay against another `TOOL`: a .wasm file or a folder with a tool")
	engineFlag(cmd, &f.engine)
	cmd.Flags().StringVar(&f.agent, "agent", "", "replay with the current agent of `FILE`")
	cmd.Flags().BoolVar(&f.force, "force", false, "with --agent, allow another provider or model")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "stop a replay after `DURATION`, without a verdict; 0 for no limit")
	cmd.Flags().StringVar(&f.profile, "profile", "", "write the fuel by function to `FILE`, for go tool pprof; replaces an older profile")
	return cmd
}

func (a *app) replay(ctx context.Context, log database, args []string, f replayFlags) error {
	db := starling.Over(log, starling.Options{})
	defer db.Close()
	o := &observers{app: a, flags: f}
	o.profile = profile.New("tool.wasm", func(tool string, function uint32) string { return o.names.Function(tool, function) })
	options := starling.ReplayOptions{
		Module: f.module, AgentFile: f.agent, Force: f.force, Timeout: f.timeout,
		Engine: starling.EngineOptions{Kind: starling.EngineKind(f.engine), Adjust: o.attach, Warn: a.warn},
	}
	if f.engine == engineV8 {
		node, err := newNode(ctx)
		if err != nil {
			return err
		}
		defer node.Close()
		options.Execute = node.Replay
	}
	r, err := db.Replayer(ctx, options)
	if err != nil {
		return explainAgent(err)
	}
	defer r.Close()
	for _, absent := range r.Absent {
		a.warn(display.Printable(starling.PlainError(absent)) + "; the record of each run says which tools it has")
	}
	if f.all {
		ctx = guest.WithProgress(ctx, nil) // there is a bar from the beginning
		return a.replayAll(ctx, db, r)
	}
	runID, err := db.Find(ctx, args[1])
	if err != nil {
		return err
	}
	if err := o.prepare(ctx, db, r, runID); err != nil {
		return err
	}
	v, err := r.Replay(ctx, runID)
	if err = errors.Join(err, o.close(ctx)); err != nil {
		return err
	}
	if err := a.printVerdict(v); err != nil {
		return err
	}
	if !a.asJSON && f.agent == "" {
		a.printEnded(ctx, log, v, f.module)
	}
	return silent(verdictCode(v))
}

// printEnded prints where the run left its recording, or where its last call failed. Its modules were
// replaced by the one that module names, unless it is empty.
func (a *app) printEnded(ctx context.Context, log database, v starling.Verdict, module string) {
	if v.Refused != nil || v.Corrupt != nil {
		return
	}
	var other guest.Source
	if module != "" {
		var err error
		if other, err = guest.Find(ctx, module); err != nil {
			return
		}
	}
	for _, line := range endedIn(ctx, log, v.RunID, v.Divergence, other.Wasm) {
		a.stdout.Printf("  %s\n", line)
	}
}

// endedIn is [debug.Ended] for a run of a database.
func endedIn(ctx context.Context, log database, runID string, d *agent.Divergence, other []byte) []string {
	left := uint64(0)
	if d != nil {
		left = d.Seq
	}
	return debug.Ended(ctx, log, runID, left, debug.Options{Modules: log, Other: other, Native: agentfile.Offline})
}

// newNode is the engine v8.
func newNode(ctx context.Context) (*verifier.Node, error) {
	node, err := verifier.NewNode(ctx)
	if err != nil {
		return nil, &failure{code: exitFailed, message: starling.PlainError(err), hint: "install it, or use another engine: --engine machine"}
	}
	return node, nil
}

// verdictCode is the exit code of a replay.
func verdictCode(v starling.Verdict) int {
	switch {
	case v.Corrupt != nil, v.Divergence != nil:
		return exitInvalid
	case v.Refused != nil:
		return refusalOf(v).code
	}
	return exitOK
}

// refusalOf returns the failure for a run that was not replayed.
func refusalOf(v starling.Verdict) *failure {
	switch {
	case v.Erased:
		return &failure{code: exitRefused, message: v.Refused.Error()}
	case errors.Is(v.Refused, eventlog.ErrSchemaTooNew):
		return &failure{code: exitRefused, message: eventlog.Corruption(v.Refused)}
	}
	return explain(v.Refused)
}

// printVerdict prints the result of one replay.
func (a *app) printVerdict(v starling.Verdict) error {
	doc := v.Document()
	if v.Refused != nil {
		doc.Error = refusalOf(v).message
	}
	return a.emit(doc, func() { a.explainVerdict(v) })
}

func (a *app) explainVerdict(v starling.Verdict) {
	switch {
	case errors.Is(v.Refused, sandbox.ErrTooDeep):
		a.stdout.Printf("%s: run %s: %s\n", terminal.Middle.Of("not decided"), v.RunID, refusalOf(v).message)
		a.hint(refusalOf(v).hint)
	case v.Refused != nil:
		a.stdout.Printf("%s: run %s: %s\n", terminal.Middle.Of("not replayed"), v.RunID, refusalOf(v).message)
	case v.Divergence != nil:
		view.Divergence(a.stdout, v.Divergence, v.Events)
	default:
		verdict, rest, _ := strings.Cut(v.String(), ":")
		a.stdout.Printf("%s:%s\n", terminal.StatusStyle(verdict).Of(verdict), rest)
	}
}

// replayAll replays every run of the database, oldest first. It prints the runs that are not
// identical and a summary, or in JSON one document for each run.
func (a *app) replayAll(ctx context.Context, db *starling.DB, r *starling.Replayer) error {
	ids, unlisted := db.RunIDs(ctx)
	if unlisted != nil && len(ids) == 0 {
		return unreadable(ctx, unlisted)
	}
	bar := a.progressBar(len(ids), progressbar.OptionShowCount())
	var total tally
	err := r.ReplayAll(ctx, ids, func(v starling.Verdict) error {
		_ = bar.Add(1)
		total.add(v)
		if !a.asJSON && (v.Erased || verdictCode(v) == exitOK) {
			return nil
		}
		return a.printVerdict(v)
	})
	_ = bar.Exit()
	if err != nil {
		return interrupted(ctx, err, "replayed", total.runs, len(ids))
	}
	if !a.asJSON {
		a.stdout.Printf("%s\n", total.String())
	}
	if unlisted != nil {
		return unreadable(ctx, unlisted)
	}
	return silent(total.code)
}

// progressBar returns a bar on standard error if that is a terminal, and otherwise a bar that shows
// nothing. It is drawn at most ten times a second.
func (a *app) progressBar(n int, more ...progressbar.Option) *progressbar.ProgressBar {
	return progressbar.NewOptions(n, append(more,
		progressbar.OptionSetWriter(a.stderr.Raw()),
		progressbar.OptionSetDescription("replay"),
		progressbar.OptionSetVisibility(a.stderr.Terminal),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)...)
}

// tally counts verdicts.
type tally struct {
	runs, identical, open, diverged, invalid, undecided, refused, erased int
	code                                                                 int
}

func (t *tally) add(v starling.Verdict) {
	t.runs++
	if v.Erased { // on purpose and for good: it would make all later replays fail
		t.erased++
		return
	}
	switch {
	case v.Corrupt != nil:
		t.invalid++
	case errors.Is(v.Refused, sandbox.ErrTooDeep):
		t.undecided++
	case v.Refused != nil:
		t.refused++
	case v.Divergence != nil:
		t.diverged++
	case v.Open:
		t.open++
	default:
		t.identical++
	}
	t.code = worse(t.code, verdictCode(v))
}

// worse returns the exit code for both: an invalid log comes before an unreadable one, and that
// before any other failure.
func worse(a, b int) int {
	for _, code := range []int{exitInvalid, exitRefused} {
		if a == code || b == code {
			return code
		}
	}
	return max(a, b)
}

func (t *tally) String() string {
	parts := []string{fmt.Sprintf("%d identical", t.identical)}
	for _, p := range []struct {
		n    int
		what string
	}{{t.open, "open and identical so far"}, {t.diverged, "diverged"}, {t.invalid, "invalid"}, {t.undecided, "not decided"}, {t.refused, "not replayed"}, {t.erased, "of tenants that were erased"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return fmt.Sprintf("%s: %s", display.Plural(t.runs, "run"), strings.Join(parts, ", "))
}

// observers watch a replay. They see the actions of the recorded call, on whatever machine it ran.
type observers struct {
	app   *app
	flags replayFlags
	names *guest.Symbols           // of the functions of the run's modules
	file  *os.File                 // of the profile; nil without one
	bar   *progressbar.ProgressBar // how far one run is; nil if stderr is not a terminal

	profile *profile.Profile
}

// attach makes an engine report the data that the flags request.
func (o *observers) attach(c *sandbox.Config) {
	if o.flags.profile != "" {
		c.Profile = func(tool string) sandbox.Profiler { return o.profile.Call(tool) }
	}
	if o.app.stderr.Terminal {
		c.Progress = func(fuel uint64) {
			if o.bar != nil {
				_ = o.bar.Add64(int64(fuel)) // an error means more fuel than recorded
			}
		}
	}
}

// prepare opens the file of the profile and the module's names of functions, and
// begins to show how far the run is.
func (o *observers) prepare(ctx context.Context, db *starling.DB, r *starling.Replayer, runID string) error {
	if o.app.stderr.Terminal {
		var recorded span.Builder // an unreadable event ends it: the replay reports that
		for ev, err := range db.Events(ctx, runID) {
			if err != nil {
				break
			}
			_ = recorded.Add(ev)
		}
		o.bar = o.app.progressBar(int(recorded.Run().Fuel))
	}
	if o.flags.profile == "" {
		return nil
	}
	var err error
	if o.names, err = r.Symbols(ctx, runID); errors.Is(err, eventlog.ErrModuleNotFound) {
		return &failure{code: exitRefused, message: "run " + runID + " has no module to profile"}
	}
	if err != nil {
		return unreadable(ctx, err)
	}
	if holdsSomethingElse(o.flags.profile) {
		return notOver(o.flags.profile, fs.ErrExist)
	}
	if o.file, err = await.Do(ctx, func() (*os.File, error) {
		return os.OpenFile(o.flags.profile, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	}); err != nil {
		return &failure{code: exitUsage, message: err.Error()}
	}
	return nil
}

// holdsSomethingElse reports whether there is a file with something in it that does not
// begin as a profile: an older profile is replaced, and the database is not. A link to a
// file, or to none, is not followed: the author of the folder would choose the file.
func holdsSomethingElse(path string) bool {
	info, err := os.Stat(path)
	link, linkErr := os.Lstat(path)
	if linkErr == nil && link.Mode().Type() == fs.ModeSymlink && (err != nil || info.Mode().IsRegular()) {
		return true
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	f, err := keyfile.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	content, err := gzip.NewReader(f)
	if err != nil {
		return true
	}
	const sampleType = 0x0a // the tag of the field that stands first, in profile.proto
	var head [1]byte
	_, err = io.ReadFull(content, head[:])
	return err != nil || head[0] != sampleType
}

// close writes the profile.
func (o *observers) close(ctx context.Context) error {
	if o.bar != nil {
		_ = o.bar.Finish()
	}
	if o.file == nil {
		return nil
	}
	_, err := await.Do(ctx, func() (any, error) { return nil, errors.Join(o.profile.Write(o.file), o.file.Close()) })
	return err
}
