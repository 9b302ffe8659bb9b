package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/serve"
	"github.com/starling-host/starling/serve/tenant"
)

const doctorHelp = `Check this machine and a database, starling.db by default if it exists. Each line has
a check, its result and, if something is missing, a command that fixes it.

With --config, check everything that a host needs to start with this file: its policy,
certificate, database, master key, disk, and the keys, agents and variables that the
file names. Nothing is changed.

"ok" needs nothing. "slow" and "limited" work, but not as well as they could. "bad"
does not work, and the exit code is 1.`

func (a *app) doctorCommand() *cobra.Command {
	var f hostFlags
	var hostFile string
	cmd := &cobra.Command{
		Use:     "doctor [DB]",
		Short:   "check this machine and a database",
		Long:    doctorHelp,
		Example: "  starling-host doctor\n  starling-host doctor starling.db --key-file host.key\n  starling-host doctor --config host.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			file := &serve.File{KeyFile: f.keyFile}
			var more []finding
			switch {
			case hostFile != "" && (len(args) > 0 || f.keyFile != ""):
				return usagef(display.Command("starling-host doctor --config", hostFile), "doctor: --config excludes DB and --key-file: the file names them")
			case hostFile != "":
				file, more = checkConfig(cmd.Context(), hostFile)
			case len(args) > 0:
				file.Database = args[0]
			case !isNew(defaultDatabase):
				file.Database = defaultDatabase
			}
			return a.doctor(cmd.Context(), file, more)
		},
	}
	f.addKey(cmd)
	cmd.Flags().StringVar(&hostFile, "config", "", "check the host that `FILE` describes")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

// findingIndent is where a finding begins on its line.
const findingIndent = 25

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

// doctor checks the machine and the host that the file describes. more has earlier findings.
func (a *app) doctor(ctx context.Context, file *serve.File, more []finding) error {
	findings := []finding{
		{"version", stateOK, fmt.Sprintf("%s, %s, %s/%s, %s", programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, display.Plural(runtime.NumCPU(), "CPU")), ""},
		{"environment", stateOK, variablesSet(), ""},
	}
	findings = append(append(findings, checkEngine(ctx)...), checkReset(ctx))
	findings = append(append(findings, checkCaches()...), checkCompilers(ctx)...)
	findings = append(findings, more...)
	if file.Database != "" {
		findings = append(findings, checkDatabase(ctx, file)...)
		findings = append(findings, checkMasterKeys(ctx, file)...)
	}
	code := exitOK
	for _, f := range findings {
		if f.state == stateBad {
			code = exitFailed
		}
		lines := a.stdout.Wrap(f.found, findingIndent)
		a.stdout.Printf("%s  %-14s  %s\n", terminal.StatusStyle(f.state).Of(fmt.Sprintf("%-7s", f.state)), f.check, lines[0])
		for _, line := range lines[1:] {
			a.stdout.Printf("%*s%s\n", findingIndent, "", line)
		}
		if f.fix != "" {
			a.stdout.Printf("%-7s  %-14s  fix: %s\n", "", "", f.fix)
		}
	}
	return silent(code)
}

// variablesSet returns the names of the environment variables that affect this program. Their
// values may be secret.
func variablesSet() string {
	var set []string
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		known := strings.HasPrefix(name, "STARLING_") || strings.HasPrefix(name, "OTEL_") || name == "XDG_CACHE_HOME" || name == "GOGC" || name == "GOMEMLIMIT"
		if known && value != "" {
			set = append(set, name)
		}
	}
	if slices.Sort(set); len(set) == 0 {
		return "no variables of this program are set"
	}
	return strings.Join(set, ", ")
}

// checkConfig resolves the file of a host as serve does.
func checkConfig(ctx context.Context, path string) (*serve.File, []finding) {
	file, err := serve.LoadFile(path)
	if err != nil {
		return &serve.File{}, []finding{refusal("config", explainFile(err))}
	}
	findings := []finding{{"config", stateOK, fmt.Sprintf("%s, for a host at %s", path, file.Listen), ""}}
	for _, r := range file.Resolve(ctx) {
		if r.Err != nil {
			findings = append(findings, refusal(r.What, explainHostSetup(r.Err)))
			continue
		}
		findings = append(findings, finding{r.What, stateOK, r.From, ""})
		for _, text := range r.Warn {
			findings = append(findings, finding{r.What, stateLimited, text, ""})
		}
	}
	return file, findings
}

// refusal is a finding that has why serve does not start.
func refusal(check string, err error) finding {
	if why, ok := errors.AsType[*failure](err); ok {
		return finding{check, stateBad, why.message, why.hint}
	}
	return finding{check, stateBad, starling.PlainError(err), ""}
}

// checkCompilers looks for what builds tools from their folders.
func checkCompilers(ctx context.Context) []finding {
	findings := []finding{{"Python, JS, TS", stateOK, "tools need no compiler", ""}}
	for _, c := range guest.Compilers(ctx) {
		f := finding{c.Language, stateOK, c.Version + ", " + c.Path, ""}
		if c.Err != nil {
			f.state, f.found = stateLimited, starling.PlainError(c.Err)
			if missing, ok := errors.AsType[*guest.SourceError](c.Err); ok {
				f.found, f.fix = missing.Reason, missing.Hint
			}
		}
		findings = append(findings, f)
	}
	return findings
}

// checkEngine looks for the compiler, and checks the features that need it.
func checkEngine(ctx context.Context) []finding {
	const check = "engine"
	engine, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		return []finding{{check, stateLimited, "machine, some fifteen times slower: " + starling.PlainError(err), ""}}
	}
	engine.Close(ctx)
	return []finding{{check, stateOK, "compiler", ""}, checkIsolation()}
}

// checkReset reports the method of resetting sandboxes, and why a better one does not work.
func checkReset(ctx context.Context) finding {
	const check = "sandbox reset"
	engine, err := sandbox.New(ctx, sandbox.Config{Interpreter: true}) // the rung does not depend on the engine
	if err != nil {
		return finding{check, stateBad, starling.PlainError(err), ""}
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

// resetMeaning describes how instances are reset.
var resetMeaning = map[sandbox.Reset]string{
	sandbox.ResetScan:    "the kernel lists the pages to restore",
	sandbox.ResetPagemap: "the pages to restore are read from /proc/self/pagemap",
	sandbox.ResetCompare: "memories are compared or dropped",
	sandbox.ResetFresh:   "every call has a new instance",
}

// checkIsolation starts a worker that reports how it is confined.
func checkIsolation() finding {
	const check = "isolation"
	report, err := guest.ProbeProcess()
	if err != nil {
		return finding{check, stateBad, "no worker processes: " + starling.PlainError(err), "starling-host run TOOL --isolation inline"}
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

// checkCaches looks at the folders in which tools are kept between runs. Each can be removed.
func checkCaches() (findings []finding) {
	built, _ := guest.BuildCacheFolder()
	fetched, _ := artifact.Finder{}.CacheFolder()
	for _, c := range []struct{ check, dir, without string }{
		{"compiled code", starling.CodeCacheFolder(), "modules are compiled in each process: "},
		{"built tools", built, "tools are built each time: "}, {"fetched tools", fetched, "tools of registries cannot be used: "},
	} {
		if c.dir == "" {
			findings = append(findings, finding{c.check, stateSlow, c.without + "there is no user cache folder", "export HOME=..."})
			continue
		}
		if err := sandbox.CheckCacheFolder(c.dir); err != nil {
			findings = append(findings, finding{c.check, stateSlow, c.without + starling.PlainError(err), display.Command("chmod 700", c.dir)})
			continue
		}
		var size int64
		_ = filepath.WalkDir(c.dir, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if info, err := d.Info(); err == nil {
					size += info.Size()
				}
			}
			return nil
		})
		findings = append(findings, finding{c.check, stateOK, display.Size(uint64(size)) + ", " + c.dir, ""})
	}
	return findings
}

// checkDatabase looks at a database without writing to it.
func checkDatabase(ctx context.Context, file *serve.File) []finding {
	const check = "database"
	path := file.Database
	var findings []finding
	if !onServer(path) {
		info, err := os.Stat(path)
		if _, missing := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) && missing == nil && file.Path != "" {
			findings := []finding{{check, stateLimited, path + " is not there: a host makes a new one, without tenants and runs", display.Command("starling-host tenant create ID --db", path) + " --key-file " + display.ShellWord(file.KeyFile)}}
			if err := file.CheckEmpty(); err != nil {
				findings = append(findings, refusal("tenants", explainHostSetup(err)))
			}
			return findings
		}
		if err != nil {
			return []finding{{check, stateBad, err.Error(), "starling-host run TOOL --db " + display.ShellWord(path)}}
		}
		mode := finding{"file mode", stateOK, fmt.Sprintf("%#o", info.Mode().Perm()), ""}
		if info.Mode().Perm()&0o077 != 0 {
			mode.state, mode.found, mode.fix = stateBad, mode.found+": others can read what the tools saw", display.Command("chmod 600", path)
		}
		findings = append(findings, mode)
		if kind := store.Network(path); kind != "" {
			found := "the database is on a " + kind + " file system: two machines, or containers without shared memory, that have it open at once damage it"
			findings = append(findings, finding{"file system", stateLimited, found, "starling-host serve --db postgres://HOST/DATABASE"})
		}
	}
	log, err := openDatabase(ctx, path)
	if err != nil {
		why := explain(err)
		fix := ""
		if why.code == exitInvalid && !onServer(path) {
			fix = display.Command("starling-host restore BACKUP", path)
		}
		return []finding{{check, stateBad, why.message, fix}}
	}
	defer log.Close()
	findings = append(findings, checkLayout(ctx, log, path))
	if findings[len(findings)-1].state == stateBad {
		return findings
	}
	if dropped := checkTables(ctx, log, path); dropped != nil {
		return append(findings, *dropped)
	}
	if onServer(path) {
		tables := checkHostTables(ctx, log, path)
		findings = append(findings, tables)
		if tables.state == stateOK {
			findings = append(findings, checkRights(ctx, log))
		}
	}
	findings = append(findings, checkSpace(ctx, log, file)...)
	return append(append(findings, checkClock(ctx, log, path)), checkRuns(ctx, log, path)...)
}

// checkTables reports tables that the database once had and has lost. It returns nil if none is
// missing.
func checkTables(ctx context.Context, log database, path string) *finding {
	var dropped []string
	for _, set := range serve.Tables() {
		taken, err := log.TableSteps(ctx, set)
		if err != nil || taken < len(set.Steps) { // which another check names
			continue
		}
		for _, table := range set.Tables {
			err := log.View(ctx, func(q eventlog.Querier) error {
				return q.Query("SELECT 1 FROM "+table+" WHERE 1 = 0", nil, func(eventlog.Row) error { return nil })
			})
			if missing, ok := errors.AsType[*eventlog.MissingTableError](err); ok && !slices.Contains(dropped, missing.Table) {
				dropped = append(dropped, missing.Table)
			}
		}
	}
	if len(dropped) == 0 {
		return nil
	}
	f := &finding{"tables", stateBad, "dropped: " + strings.Join(dropped, ", "), display.Command("starling-host restore BACKUP", path)}
	if onServer(path) {
		f.fix = "pg_restore"
	}
	return f
}

// checkSpace looks at the room on the disk of a file, as the host does, and at the modules.
func checkSpace(ctx context.Context, log database, file *serve.File) (findings []finding) {
	where := file.Database
	if !onServer(where) {
		room, err := serve.DatabaseRoom(log, where)
		f := finding{"disk", stateOK, fmt.Sprintf("%s free of %s", display.Size(uint64(room.Free)), display.Size(uint64(room.Total))), ""}
		if room.Reusable > 0 {
			f.found += fmt.Sprintf(", and %s in the file", display.Size(uint64(room.Reusable)))
		}
		keep := room.Keep(file.Space.KeepFree)
		switch free := room.Free + room.Reusable; {
		case err != nil:
			f.state, f.found = stateLimited, "not known: "+starling.PlainError(err)
		case free < keep/2 || room.Free < keep/16:
			f.state, f.found = stateBad, f.found+"; a host accepts no runs"
		case free < keep || room.Free < keep/4:
			f.state, f.found = stateLimited, f.found+"; a host accepts no modules"
		}
		if f.state != stateOK {
			f.fix = display.Command("starling-host prune", named(where)) + " --older-than 30d --confirm --compact"
		}
		findings = append(findings, f)
	}
	size, err := serve.DatabaseBytes(ctx, log, where)
	if err != nil {
		return append(findings, finding{"size", stateBad, starling.PlainError(err), ""})
	}
	f := finding{"size", stateOK, display.Size(uint64(size)), ""}
	if have, want, err := log.SchemaVersions(ctx); err == nil && have == want {
		stored, err := eventlog.CountModules(ctx, log, "")
		if missing := (*eventlog.MissingTableError)(nil); errors.As(err, &missing) {
			return append(findings, finding{"size", stateLimited, f.found + "; an earlier commit made it: its runs can be read, and none can be added",
				display.Command("starling-host archive", named(where)) + " runs.ndjson --include-open"})
		} else if err != nil {
			return append(findings, finding{"size", stateBad, starling.PlainError(err), ""})
		}
		f.found += fmt.Sprintf("; it has %s of %s, compressed", display.Plural(stored.Modules, "module"), display.Size(uint64(stored.Bytes)))
		if most := file.Space.Modules; most > 0 && stored.Bytes >= most {
			f.state, f.found = stateLimited, f.found+fmt.Sprintf("; space.modules allows %s, so a host accepts no more", display.Size(uint64(most)))
		}
	}
	return append(findings, f)
}

// clockTolerance is how far clocks may differ: leases and the ids of runs go by them.
const clockTolerance = 2 * time.Second

// checkClock compares the clock with that of a server, or with the newest run.
func checkClock(ctx context.Context, log database, where string) finding {
	const check = "clock"
	var at time.Time
	var err error
	what := "the server's clock is"
	if onServer(where) {
		const query = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000000 AS BIGINT)"
		err = log.View(ctx, func(q eventlog.Querier) error {
			return q.Query(query, nil, func(r eventlog.Row) error {
				var ns int64
				err := r.Scan(&ns)
				at = time.Unix(0, ns)
				return err
			})
		})
	} else {
		what = "the newest run began"
		var page eventlog.RunPage
		if page, err = log.ListRunsPage(ctx, eventlog.RunPageOptions{Limit: 1}); len(page.Runs) > 0 {
			at = page.Runs[0].StartedAt
		}
	}
	ahead := time.Until(at).Round(time.Millisecond)
	switch {
	case err != nil:
		return finding{check, stateBad, starling.PlainError(err), ""}
	case ahead > clockTolerance:
		return finding{check, stateLimited, fmt.Sprintf("%s %v ahead of this machine's clock", what, ahead), "timedatectl set-ntp true"}
	case onServer(where) && ahead < -clockTolerance:
		return finding{check, stateLimited, fmt.Sprintf("%s %v behind this machine's clock", what, -ahead), "timedatectl set-ntp true"}
	}
	return finding{check, stateOK, time.Now().UTC().Format(time.RFC3339), ""}
}

// checkMasterKeys names the master keys that the tenants' data keys are under. If there is a
// key file, or the variable, it must have them all.
func checkMasterKeys(ctx context.Context, file *serve.File) []finding {
	const check = "master keys"
	path, keyFile := file.Database, file.KeyFile
	held, err := masterKeysFrom(keyFile)
	if err != nil {
		return []finding{{check, stateBad, starling.PlainError(err), ""}}
	}
	log, err := openDatabase(ctx, path)
	if err != nil {
		return nil // checkDatabase says so
	}
	defer log.Close()
	var used []tenant.MasterUse
	tenants, err := tenant.Open(ctx, log, tenant.Options{Existing: true})
	if err == nil {
		used, err = tenants.MasterUses(ctx)
	}
	switch {
	case errors.Is(err, tenant.ErrNoTables), err == nil && len(used) == 0:
		if err := file.CheckEmpty(); err != nil {
			return []finding{refusal("tenants", explainHostSetup(err))}
		}
		return nil
	case errors.Is(err, eventlog.ErrReadOnly), store.Denied(err):
		return nil // of an older program, or for a role that does not serve
	case err != nil:
		return []finding{{check, stateBad, starling.PlainError(err), ""}}
	}
	result := finding{check: check, state: stateOK}
	var uses []string
	for _, u := range used {
		use := fmt.Sprintf("%s under %s", display.Plural(u.DataKeys, "data key"), u.ID)
		if len(held) > 0 && !slices.ContainsFunc(held, func(k tenant.MasterKey) bool { return k.ID() == u.ID }) {
			result.state, result.fix = stateBad, "export "+masterKeyVariable+"=\"$(cat OTHER.key)\""
			if keyFile != "" {
				result.fix = display.Command("cat OTHER.key >>", keyFile) + " and send SIGHUP to the host"
			}
			use += ", which " + cmp.Or(keyFile, masterKeyVariable) + " lacks"
		}
		uses = append(uses, use)
	}
	if result.found = strings.Join(uses, "; "); len(used) > 1 && result.state == stateOK {
		result.state, result.fix = stateLimited, display.Command("starling-host tenant rewrap --db", named(path))+" --key-file FILE --new-key-file FILE"
	}
	return []finding{result}
}

// newestRuns is how many runs the doctor validates.
const newestRuns = 20

// checkRuns counts the runs, validates the newest ones, and looks for runs written by another
// program.
func checkRuns(ctx context.Context, log database, where string) []finding {
	page, err := log.ListRunsPage(ctx, eventlog.RunPageOptions{Limit: newestRuns})
	if err != nil {
		return []finding{{"runs", stateBad, starling.PlainError(err), display.Command("starling-host validate", named(where))}}
	}
	count := finding{"runs", stateOK, display.Plural(page.TotalMatching, "run"), ""}
	plan, err := log.MigrateSchema(ctx, true)
	switch {
	case err != nil:
		return []finding{{"runs", stateBad, starling.PlainError(err), ""}}
	case plan.From == plan.To && plan.Runs > 0:
		count.state, count.fix = stateLimited, display.Command("starling-host migrate", named(where))
		count.found += fmt.Sprintf("; the summaries of %d lack events: another program wrote the events, or the summaries were lost", plan.Runs)
	}
	newest := finding{"newest runs", stateOK, fmt.Sprintf("%d valid", len(page.Runs)), ""}
	db := starling.Over(log, starling.Options{})
	for _, run := range page.Runs {
		v, err := db.Validate(ctx, run.RunID)
		if err != nil { // which does not make the run invalid
			return []finding{count, {"newest runs", stateBad, "not checked: " + starling.PlainError(err), display.Command("starling-host validate", named(where))}}
		}
		if err = v.Err; errors.Is(err, eventlog.ErrSchemaTooNew) {
			newest.state, newest.found = stateLimited, "update this program: "+starling.Corruption(err)
			continue
		}
		if err != nil {
			newest.state, newest.fix = stateBad, display.Command("starling-host validate", named(where))
			newest.found = "not valid: " + starling.Corruption(err)
			break
		}
	}
	return []finding{count, newest}
}

func checkLayout(ctx context.Context, log database, path string) finding {
	const check = "layout"
	version, want, err := log.SchemaVersions(ctx)
	if err == nil {
		err = eventlog.CheckSchema(version, want)
	}
	switch {
	case errors.Is(err, eventlog.ErrSchemaOutdated) && version == 0 && onServer(path): // a file then has the Starling runtime's
		return finding{check, stateBad, "there are no tables yet", display.Command("starling-host migrate", named(path))}
	case errors.Is(err, eventlog.ErrSchemaOutdated):
		return finding{check, stateLimited, fmt.Sprintf("version %d is read-only", version), display.Command("starling-host migrate", named(path))}
	case err != nil:
		return finding{check, stateBad, starling.PlainError(err), ""}
	}
	return finding{check, stateOK, fmt.Sprintf("version %d", version), ""}
}

// checkHostTables looks for missing tables, which only the owner of a server's tables can create.
func checkHostTables(ctx context.Context, log database, where string) finding {
	const check = "host tables"
	missing, err := missingTables(ctx, log)
	switch {
	case err != nil:
		return finding{check, stateBad, starling.PlainError(err), ""}
	case len(missing) > 0:
		return finding{check, stateLimited, "older or not there: " + namesOf(missing), display.Command("starling-host migrate", named(where))}
	}
	return finding{check, stateOK, "as this program makes them", ""}
}
