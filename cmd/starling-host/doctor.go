package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/host/cachefile"
	"github.com/starling-host/starling/host/registry"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/host/worker"
)

const doctorHelp = `Check what this machine offers, and a database if one is named. Each line has a
check, what was found and, where something is missing, a command that mends it.

"ok" needs nothing, "slow" or "limited" works but not as well as it could, and
"bad" does not work: then the exit code is 1.`

func (a *app) doctorCommand() *cobra.Command {
	var f hostFlags
	cmd := &cobra.Command{
		Use:     "doctor [DB]",
		Short:   "check this machine and a database",
		Long:    doctorHelp,
		Example: "  starling-host doctor\n  starling-host doctor starling.db --key-file host.key",
		GroupID: groupOther,
		Args:    arguments(0, "DB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.doctor(cmd.Context(), args, f.keyFile)
		},
	}
	f.addKey(cmd)
	return cmd
}

// finding is the result of one check.
type finding struct {
	check string
	state string // one of the states below
	found string
	fix   string // a command, or empty
}

// The states of a finding.
const (
	stateOK      = "ok"
	stateSlow    = "slow"
	stateLimited = "limited"
	stateBad     = "bad"
)

func (a *app) doctor(ctx context.Context, args []string, keyFile string) error {
	findings := append([]finding{checkGo(ctx), checkScripts(ctx)}, checkEngine(ctx)...)
	findings = append(findings, checkReset(ctx), checkBuildCache())
	if len(args) == 1 {
		findings = append(findings, checkDatabase(ctx, args[0])...)
		findings = append(findings, checkMasterKeys(ctx, args[0], keyFile)...)
	}
	code := exitOK
	for _, f := range findings {
		if f.state == stateBad {
			code = exitFailed
		}
		a.stdout.printf("%-7s  %-14s  %s\n", f.state, f.check, f.found)
		if f.fix != "" {
			a.stdout.printf("%-7s  %-14s  fix: %s\n", "", "", f.fix)
		}
	}
	return silent(code)
}

func checkGo(ctx context.Context) finding {
	version, path, err := registry.GoVersion(ctx)
	if err != nil {
		return finding{"go", stateLimited, "tools in Go cannot be built: " + reason(err), "install Go from https://go.dev/dl"}
	}
	return finding{"go", stateOK, fmt.Sprintf("%s, %s", version, path), ""}
}

func checkScripts(ctx context.Context) finding {
	const check = "starling-build"
	version, path, err := registry.ScriptBuilder(ctx)
	if err != nil {
		return finding{check, stateLimited, "tools in JavaScript cannot be built: " + reason(err), "with Node 20 or later, in the folder guest-sdk/js: npm ci && npm link"}
	}
	return finding{check, stateOK, fmt.Sprintf("%s, %s", version, path), ""}
}

// reason is why something is not there, without what it would be for.
func reason(err error) string {
	if missing, ok := errors.AsType[*registry.Error](err); ok {
		return missing.Reason
	}
	return plainError(err)
}

// checkEngine looks for the compiler, and for what there is with one alone.
func checkEngine(ctx context.Context) []finding {
	const check = "engine"
	engine, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		found := "interpreter, and so no worker processes: " + plainError(err)
		return []finding{{check, stateLimited, found, "starling-host run TOOL --isolation inline"}}
	}
	engine.Close(ctx)
	return []finding{{check, stateOK, "compiler", ""}, checkIsolation(), checkCompileCache(ctx)}
}

// checkReset names the rung on which pristine sandboxes stand, and why it is not
// a better one.
func checkReset(ctx context.Context) finding {
	const check = "sandbox reset"
	engine, err := sandbox.New(ctx, sandbox.Config{Interpreter: true}) // the rung does not depend on the engine
	if err != nil {
		return finding{check, stateBad, plainError(err), ""}
	}
	defer engine.Close(ctx)
	rungs := engine.Resets()
	used := rungs[len(rungs)-1]
	state, found := stateOK, string(used.Method)+", "+resetMeaning[used.Method]
	for _, better := range rungs[:len(rungs)-1] {
		state = stateSlow
		found += fmt.Sprintf("; not %s: %v", better.Method, better.Err)
	}
	return finding{check, state, found, ""}
}

// resetMeaning says how instances are made pristine.
var resetMeaning = map[sandbox.Reset]string{
	sandbox.ResetScan:    "the kernel lists the pages to restore",
	sandbox.ResetPagemap: "the pages to restore are read from /proc/self/pagemap",
	sandbox.ResetCompare: "memories are compared or dropped",
	sandbox.ResetFresh:   "every call has a new instance",
}

// checkIsolation asks a worker what locks it down.
func checkIsolation() finding {
	const check = "isolation"
	report, err := worker.Probe()
	if err != nil {
		return finding{check, stateBad, "no worker processes: " + plainError(err), "starling-host run TOOL --isolation inline"}
	}
	state, on, off := stateOK, []string{"worker processes"}, ""
	for _, l := range report.Layers {
		if l.On {
			on = append(on, l.Name)
			continue
		}
		state = stateLimited
		off += fmt.Sprintf("; not %s: %s", l.Name, l.Why)
	}
	return finding{check, state, strings.Join(on, ", ") + off, ""}
}

func checkCompileCache(ctx context.Context) finding {
	const check = "compiled code"
	dir := compileCacheDir()
	if dir == "" {
		return finding{check, stateSlow, "modules are compiled in each process: there is no user cache folder", "export HOME=..."}
	}
	engine, err := sandbox.New(ctx, sandbox.Config{CacheDir: dir})
	if err != nil {
		return finding{check, stateSlow, plainError(err), pasteable("chmod 700", dir)}
	}
	engine.Close(ctx)
	return finding{check, stateOK, dir, ""}
}

func checkBuildCache() finding {
	const check = "built tools"
	dir, err := registry.CacheDir()
	if err != nil {
		return finding{check, stateSlow, "tools are built each time: " + err.Error(), "export HOME=..."}
	}
	if err := cachefile.Folder(dir); err != nil {
		return finding{check, stateSlow, "tools are built each time: " + plainError(err), pasteable("chmod 700", dir)}
	}
	return finding{check, stateOK, dir, ""}
}

// checkDatabase looks at a database without writing to it.
func checkDatabase(ctx context.Context, path string) []finding {
	const check = "database"
	var findings []finding
	if !onServer(path) {
		info, err := os.Stat(path)
		if err != nil {
			return []finding{{check, stateBad, err.Error(), "starling-host run TOOL --db " + shellWord(path)}}
		}
		findings = append(findings, checkMode(path, info))
	}
	log, err := openDatabase(ctx, path)
	if err != nil {
		return []finding{{check, stateBad, explain(err).message, ""}}
	}
	defer log.Close()
	findings = append(findings, checkLayout(ctx, log, path))
	if findings[len(findings)-1].state == stateBad {
		return findings
	}
	if onServer(path) {
		tables := checkHostTables(ctx, log, path)
		findings = append(findings, tables)
		if tables.state == stateOK {
			findings = append(findings, checkRights(ctx, log))
		}
	}
	return append(findings, checkRuns(ctx, log, path)...)
}

// checkMasterKeys names the master keys that the tenants' data keys are under. If there is a
// key file, or the variable, it must have them all.
func checkMasterKeys(ctx context.Context, path, keyFile string) []finding {
	const check = "master keys"
	held, err := masterKeysFrom(keyFile)
	if err != nil {
		return []finding{{check, stateBad, plainError(err), ""}}
	}
	log, err := openDatabase(ctx, path)
	if err != nil {
		return nil // checkDatabase says so
	}
	defer log.Close()
	var used []tenant.MasterUse
	store, err := tenant.Open(ctx, log, tenant.Options{Existing: true})
	if err == nil {
		used, err = store.MasterUses(ctx)
	}
	switch {
	case errors.Is(err, tenant.ErrNoTables), errors.Is(err, eventlog.ErrReadOnly), pglog.Denied(err), err == nil && len(used) == 0:
		return nil // without tenants, of an older program, or for a role that does not serve
	case err != nil:
		return []finding{{check, stateBad, plainError(err), ""}}
	}
	result := finding{check: check, state: stateOK}
	var uses []string
	for _, u := range used {
		use := fmt.Sprintf("%s under %s", plural(u.DataKeys, "data key"), u.ID)
		if len(held) > 0 && !slices.ContainsFunc(held, func(k tenant.MasterKey) bool { return k.ID() == u.ID }) {
			result.state, result.fix = stateBad, pasteable("starling-host doctor", named(path))+" --key-file FILE"
			use += ", which " + cmp.Or(keyFile, masterKeyVariable) + " lacks"
		}
		uses = append(uses, use)
	}
	if result.found = strings.Join(uses, "; "); len(used) > 1 && result.state == stateOK {
		result.state, result.fix = stateLimited, pasteable("starling-host tenant rewrap --db", named(path))+" --key-file FILE --new-key-file FILE"
	}
	return []finding{result}
}

// newestRuns is how many runs the doctor validates.
const newestRuns = 20

// checkRuns counts the runs, validates the newest ones, and looks for those that another
// program has written.
func checkRuns(ctx context.Context, log database, where string) []finding {
	page, err := log.ListRunsPage(ctx, eventlog.RunPageOptions{Limit: newestRuns})
	if err != nil {
		return []finding{{"runs", stateBad, plainError(err), pasteable("starling-host validate", named(where))}}
	}
	count := finding{"runs", stateOK, plural(page.TotalMatching, "run"), ""}
	plan, err := log.MigrateSchema(ctx, true)
	switch {
	case err != nil:
		return []finding{{"runs", stateBad, plainError(err), ""}}
	case plan.From == plan.To && plan.Runs > 0:
		count.state, count.fix = stateLimited, pasteable("starling-host migrate", named(where))
		count.found += fmt.Sprintf("; the kept summaries of %d lack events: another program wrote these, or the summaries were lost", plan.Runs)
	}
	newest := finding{"newest runs", stateOK, fmt.Sprintf("%d valid", len(page.Runs)), ""}
	modules := newModuleChecks(log)
	for _, run := range page.Runs {
		_, err := checkRun(ctx, log, run.RunID, modules)
		if errors.Is(err, eventlog.ErrSchemaTooNew) {
			newest.state, newest.found = stateLimited, "update this program: "+corruption(err)
			continue
		}
		if err != nil {
			newest.state, newest.fix = stateBad, pasteable("starling-host validate", named(where))
			newest.found = "not valid: " + corruption(err)
			break
		}
	}
	return []finding{count, newest}
}

func checkMode(path string, info fs.FileInfo) finding {
	const check = "file mode"
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return finding{check, stateBad, fmt.Sprintf("%#o: others can read what the tools saw", mode), pasteable("chmod 600", path)}
	}
	return finding{check, stateOK, fmt.Sprintf("%#o", info.Mode().Perm()), ""}
}

func checkLayout(ctx context.Context, log eventlog.EventLog, path string) finding {
	const check = "layout"
	version, err := eventlog.SchemaVersion(ctx, log)
	if err == nil {
		err = eventlog.Preflight(ctx, log)
	}
	switch {
	case errors.Is(err, eventlog.ErrSchemaOutdated) && version == 0 && onServer(path): // a file then has the seed runtime's
		return finding{check, stateBad, "there are no tables yet", pasteable("starling-host migrate", named(path))}
	case errors.Is(err, eventlog.ErrSchemaOutdated):
		return finding{check, stateLimited, fmt.Sprintf("version %d can be read, not written", version), pasteable("starling-host migrate", named(path))}
	case err != nil:
		return finding{check, stateBad, plainError(err), ""}
	}
	return finding{check, stateOK, fmt.Sprintf("version %d", version), ""}
}

// checkHostTables looks for what only the owner of a server's tables can make.
func checkHostTables(ctx context.Context, log database, where string) finding {
	const check = "host tables"
	missing, err := missingTables(ctx, log)
	switch {
	case err != nil:
		return finding{check, stateBad, plainError(err), ""}
	case len(missing) > 0:
		return finding{check, stateLimited, "older or not there: " + strings.Join(missing, ", "), pasteable("starling-host migrate", named(where))}
	}
	return finding{check, stateOK, "as this program makes them", ""}
}
