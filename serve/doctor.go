package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/serve/tenant"
)

// Finding is the result of one check of a machine or a host.
type Finding struct {
	Check string
	State string // one of the states below
	Found string
	Fix   string // a command, or empty
	Err   error  // what is wrong, in place of Found and Fix
}

// The states of a finding.
const (
	StateOK      = "ok"
	StateSlow    = "slow"
	StateLimited = "limited"
	StateBad     = "bad"
)

// CheckMachine checks whether this machine can run tools, and how well.
func CheckMachine(ctx context.Context) []Finding {
	findings := append(checkEngine(ctx), checkReset(ctx))
	return append(append(findings, checkCaches()...), checkCompilers(ctx)...)
}

// Check resolves a file as [Open] does, see [File.Resolve].
func (f *File) Check(ctx context.Context) []Finding {
	findings := []Finding{{"config", StateOK, fmt.Sprintf("%s, for a host at %s", f.Path, f.Listen), "", nil}}
	for _, r := range f.Resolve(ctx) {
		if r.Err != nil {
			findings = append(findings, refusal(r.What, r.Err))
			continue
		}
		findings = append(findings, Finding{r.What, StateOK, r.From, "", nil})
		for _, text := range r.Warn {
			findings = append(findings, Finding{r.What, StateLimited, text, "", nil})
		}
	}
	return findings
}

// refusal is a finding that has why a host does not start.
func refusal(check string, err error) Finding { return Finding{check, StateBad, "", "", err} }

// checkCompilers looks for what builds tools from their folders.
func checkCompilers(ctx context.Context) []Finding {
	findings := []Finding{{"Python, JS, TS", StateOK, "tools need no compiler", "", nil}}
	for _, c := range guest.Compilers(ctx) {
		f := Finding{c.Language, StateOK, c.Version + ", " + c.Path, "", nil}
		if c.Err != nil {
			f.State, f.Found = StateLimited, starling.PlainError(c.Err)
			if missing, ok := errors.AsType[*guest.SourceError](c.Err); ok {
				f.Found, f.Fix = missing.Reason, missing.Hint
			}
		}
		findings = append(findings, f)
	}
	return findings
}

// checkEngine looks for the compiler, and checks the features that need it.
func checkEngine(ctx context.Context) []Finding {
	const check = "engine"
	engine, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		return []Finding{{check, StateLimited, "machine, some fifteen times slower: " + starling.PlainError(err), "", nil}}
	}
	engine.Close(ctx)
	return []Finding{{check, StateOK, "compiler", "", nil}, checkIsolation()}
}

// checkReset reports the method of resetting sandboxes, and why a better one does not work.
func checkReset(ctx context.Context) Finding {
	const check = "sandbox reset"
	engine, err := sandbox.New(ctx, sandbox.Config{Interpreter: true}) // the rung does not depend on the engine
	if err != nil {
		return Finding{check, StateBad, starling.PlainError(err), "", nil}
	}
	defer engine.Close(ctx)
	rungs := engine.Resets()
	used := rungs[len(rungs)-1]
	state, found := StateOK, string(used.Method)+", "+resetMeaning[used.Method]
	for _, better := range rungs[:len(rungs)-1] {
		state = StateSlow
		found += fmt.Sprintf("; not %s: %v", better.Method, better.Err)
	}
	return Finding{check, state, found, "", nil}
}

// resetMeaning describes how instances are reset.
var resetMeaning = map[sandbox.Reset]string{
	sandbox.ResetScan:    "the kernel lists the pages to restore",
	sandbox.ResetCompare: "memories are compared or dropped",
	sandbox.ResetFresh:   "every call has a new instance",
}

// checkIsolation starts a worker that reports how it is confined.
func checkIsolation() Finding {
	const check = "isolation"
	report, err := guest.ProbeProcess()
	if err != nil {
		return Finding{check, StateBad, "no worker processes: " + starling.PlainError(err), "starling-host run TOOL --isolation inline", nil}
	}
	state, on, off := StateOK, []string{"worker processes"}, ""
	for _, l := range report.Layers {
		if l.On {
			on = append(on, l.Name)
			continue
		}
		state = StateLimited
		off += fmt.Sprintf("; not %s: %s", l.Name, l.Why)
	}
	return Finding{check, state, strings.Join(on, ", ") + off, "", nil}
}

// checkCaches looks at the folders in which tools are kept between runs. Each can be removed.
func checkCaches() (findings []Finding) {
	built, _ := guest.BuildCacheFolder()
	fetched, _ := artifact.Finder{}.CacheFolder()
	for _, c := range []struct{ check, dir, without string }{
		{"compiled code", starling.CodeCacheFolder(), "modules are compiled in each process: "},
		{"built tools", built, "tools are built each time: "}, {"fetched tools", fetched, "tools of registries cannot be used: "},
	} {
		if c.dir == "" {
			findings = append(findings, Finding{c.check, StateSlow, c.without + "there is no user cache folder", "export HOME=...", nil})
			continue
		}
		if err := sandbox.CheckCacheFolder(c.dir); err != nil {
			findings = append(findings, Finding{c.check, StateSlow, c.without + starling.PlainError(err), display.Command("chmod 700", c.dir), nil})
			continue
		}
		findings = append(findings, Finding{c.check, StateOK, display.Size(uint64(sandbox.CacheBytes(c.dir))) + ", " + c.dir, "", nil})
	}
	return findings
}

// CheckDatabase looks at the database of a file, which open opens for reading only, and at the master keys that
// its tenants need. If it cannot be opened, the finding "database" has the error. A deep check compares all
// events with what the database keeps about their runs.
func (f *File) CheckDatabase(ctx context.Context, open func(context.Context, string) (store.Database, error), deep bool) []Finding {
	const check = "database"
	path := f.Database
	var findings []Finding
	if !store.OnServer(path) {
		info, err := os.Stat(path)
		if _, missing := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) && missing == nil && f.Path != "" {
			findings := []Finding{{check, StateLimited, path + " is not there: a host makes a new one, without tenants and runs", display.Command("starling-host tenant create ID --db", path) + " --key-file " + display.ShellWord(f.KeyFile), nil}}
			if err := f.CheckEmpty(); err != nil {
				findings = append(findings, refusal("tenants", err))
			}
			return findings
		}
		if err != nil {
			return []Finding{{check, StateBad, err.Error(), "starling-host run TOOL --db " + display.ShellWord(path), nil}}
		}
		mode := Finding{"file mode", StateOK, fmt.Sprintf("%#o", info.Mode().Perm()), "", nil}
		if info.Mode().Perm()&0o077 != 0 {
			mode.State, mode.Found, mode.Fix = StateBad, mode.Found+": others can read what the tools saw", display.Command("chmod 600", path)
		}
		findings = append(findings, mode)
		if kind := store.Network(path); kind != "" {
			found := "the database is on a " + kind + " file system: two machines, or containers without shared memory, that have it open at once damage it"
			findings = append(findings, Finding{"file system", StateLimited, found, "starling-host serve --db postgres://HOST/DATABASE", nil})
		}
	}
	log, err := open(ctx, path)
	if err != nil {
		return []Finding{refusal(check, err)}
	}
	defer log.Close()
	return append(append(findings, checkLog(ctx, log, f, deep)...), checkMasterKeys(ctx, log, f)...)
}

// checkLog looks at an open database.
func checkLog(ctx context.Context, log store.Database, file *File, deep bool) (findings []Finding) {
	path := file.Database
	findings = append(findings, checkLayout(ctx, log, path))
	if findings[len(findings)-1].State == StateBad {
		return findings
	}
	if dropped := checkTables(ctx, log, path); dropped != nil {
		return append(findings, *dropped)
	}
	if store.OnServer(path) {
		tables := checkHostTables(ctx, log, path)
		findings = append(findings, tables)
		if tables.State == StateOK {
			findings = append(findings, checkRights(ctx, log))
		}
	}
	findings = append(findings, checkSpace(ctx, log, file)...)
	return append(append(findings, checkClock(ctx, log, path)), checkRuns(ctx, log, path, deep)...)
}

// checkTables reports tables that the database once had and has lost. It returns nil if none is
// missing.
func checkTables(ctx context.Context, log store.Database, path string) *Finding {
	var dropped []string
	for _, set := range Tables() {
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
	f := &Finding{"tables", StateBad, "dropped: " + strings.Join(dropped, ", "), display.Command("starling-host restore BACKUP", path), nil}
	if store.OnServer(path) {
		f.Fix = "pg_restore"
	}
	return f
}

// checkSpace looks at the room on the disk of a file, as the host does, and at the modules.
func checkSpace(ctx context.Context, log store.Database, file *File) (findings []Finding) {
	where := file.Database
	if !store.OnServer(where) {
		room, err := DatabaseRoom(log, where)
		f := Finding{"disk", StateOK, fmt.Sprintf("%s free of %s", display.Size(uint64(room.Free)), display.Size(uint64(room.Total))), "", nil}
		if room.Reusable > 0 {
			f.Found += fmt.Sprintf(", and %s in the file", display.Size(uint64(room.Reusable)))
		}
		keep := room.Keep(file.Space.KeepFree)
		switch free := room.Free + room.Reusable; {
		case err != nil:
			f.State, f.Found = StateLimited, "not known: "+starling.PlainError(err)
		case free < keep/2 || room.Free < keep/16:
			f.State, f.Found = StateBad, f.Found+"; a host accepts no runs"
		case free < keep || room.Free < keep/4:
			f.State, f.Found = StateLimited, f.Found+"; a host accepts no modules"
		}
		if f.State != StateOK {
			f.Fix = display.Command("starling-host prune", store.Name(where)) + " --older-than 30d --confirm --compact"
		}
		findings = append(findings, f)
	}
	size, err := DatabaseBytes(ctx, log, where)
	if err != nil {
		return append(findings, Finding{"size", StateBad, starling.PlainError(err), "", nil})
	}
	f := Finding{"size", StateOK, display.Size(uint64(size)), "", nil}
	if have, want, err := log.SchemaVersions(ctx); err == nil && have == want {
		stored, err := eventlog.CountModules(ctx, log, "")
		if missing := (*eventlog.MissingTableError)(nil); errors.As(err, &missing) {
			return append(findings, Finding{"size", StateLimited, f.Found + "; an earlier commit made it: its runs can be read, and none can be added",
				display.Command("starling-host archive", store.Name(where)) + " runs.ndjson --include-open", nil})
		} else if err != nil {
			return append(findings, Finding{"size", StateBad, starling.PlainError(err), "", nil})
		}
		f.Found += fmt.Sprintf("; it has %s of %s, compressed", display.Plural(stored.Modules, "module"), display.Size(uint64(stored.Bytes)))
		if most := file.Space.Modules; most > 0 && stored.Bytes >= most {
			f.State, f.Found = StateLimited, f.Found+fmt.Sprintf("; space.modules allows %s, so a host accepts no more", display.Size(uint64(most)))
		}
	}
	return append(findings, f)
}

// clockTolerance is how far clocks may differ: leases and the ids of runs go by them.
const clockTolerance = 2 * time.Second

// checkClock compares the clock with that of a server, or with the newest run.
func checkClock(ctx context.Context, log store.Database, where string) Finding {
	const check = "clock"
	var at time.Time
	var err error
	what := "the server's clock is"
	if server, ok := log.(eventlog.Shared); ok {
		at, err = server.Now(ctx)
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
		return Finding{check, StateBad, starling.PlainError(err), "", nil}
	case ahead > clockTolerance:
		return Finding{check, StateLimited, fmt.Sprintf("%s %v ahead of this machine's clock", what, ahead), "timedatectl set-ntp true", nil}
	case store.OnServer(where) && ahead < -clockTolerance:
		return Finding{check, StateLimited, fmt.Sprintf("%s %v behind this machine's clock", what, -ahead), "timedatectl set-ntp true", nil}
	}
	return Finding{check, StateOK, time.Now().UTC().Format(time.RFC3339), "", nil}
}

// checkMasterKeys names the master keys that the tenants' data keys are under. If there is a
// key file, or the variable, it must have them all.
func checkMasterKeys(ctx context.Context, log store.Database, file *File) []Finding {
	const check = "master keys"
	path, keyFile := file.Database, file.KeyFile
	held, err := tenant.MasterKeys(keyFile)
	if err != nil {
		return []Finding{{check, StateBad, starling.PlainError(err), "", nil}}
	}
	var used []tenant.MasterUse
	tenants, err := tenant.Open(ctx, log, tenant.Options{Existing: true})
	if err == nil {
		used, err = tenants.MasterUses(ctx)
	}
	switch {
	case errors.Is(err, tenant.ErrNoTables), err == nil && len(used) == 0:
		if err := file.CheckEmpty(); err != nil {
			return []Finding{refusal("tenants", err)}
		}
		return nil
	case errors.Is(err, eventlog.ErrReadOnly), store.Denied(err):
		return nil // of an older program, or for a role that does not serve
	case err != nil:
		return []Finding{{check, StateBad, starling.PlainError(err), "", nil}}
	}
	result := Finding{Check: check, State: StateOK}
	var uses []string
	for _, u := range used {
		use := fmt.Sprintf("%s under %s", display.Plural(u.DataKeys, "data key"), u.ID)
		if len(held) > 0 && !slices.ContainsFunc(held, func(k tenant.MasterKey) bool { return k.ID() == u.ID }) {
			result.State, result.Fix = StateBad, "export "+tenant.MasterKeyVariable+"=\"$(cat OTHER.key)\""
			if keyFile != "" {
				result.Fix = display.Command("cat OTHER.key >>", keyFile) + " and send SIGHUP to the host"
			}
			use += ", which " + cmp.Or(keyFile, tenant.MasterKeyVariable) + " lacks"
		}
		uses = append(uses, use)
	}
	if result.Found = strings.Join(uses, "; "); len(used) > 1 && result.State == StateOK {
		result.State, result.Fix = StateLimited, display.Command("starling-host tenant rewrap --db", store.Name(path))+" --key-file FILE --new-key-file FILE"
	}
	return []Finding{result}
}

// newestRuns is how many runs the doctor validates.
const newestRuns = 20

// checkRuns counts the runs and validates the newest ones. A deep check looks for runs written by another
// program, and counts recorded bytes.
func checkRuns(ctx context.Context, log store.Database, where string, deep bool) []Finding {
	page, err := log.ListRunsPage(ctx, eventlog.RunPageOptions{Limit: newestRuns})
	if err != nil {
		return []Finding{{"runs", StateBad, starling.PlainError(err), display.Command("starling-host validate", store.Name(where)), nil}}
	}
	count := Finding{"runs", StateOK, display.Counted(page.TotalMatching, eventlog.MaxCounted, "run"), "", nil}
	var plan eventlog.MigrationReport
	if deep {
		plan, err = log.MigrateSchema(ctx, true)
	}
	switch {
	case err != nil:
		return []Finding{{"runs", StateBad, starling.PlainError(err), "", nil}}
	case plan.From == plan.To && plan.Runs > 0:
		count.State, count.Fix = StateLimited, display.Command("starling-host migrate", store.Name(where))
		count.Found += fmt.Sprintf("; the summaries of %d lack events: another program wrote the events, or the summaries were lost", plan.Runs)
	case len(plan.Miscounted) > 0:
		count.State, count.Fix = StateLimited, display.Command("starling-host migrate", store.Name(where))
		count.Found += fmt.Sprintf("; the recorded bytes of %s are not those of the events: limits and usage go by them", someOf(plan.Miscounted))
	case plan.Uncounted > 0:
		count.State, count.Fix = StateLimited, display.Command("starling-host migrate", store.Name(where))
		count.Found += fmt.Sprintf("; the recorded bytes of %d are summed up each time: a host of an earlier version wrote them", plan.Uncounted)
	}
	newest := Finding{"newest runs", StateOK, fmt.Sprintf("%d valid", len(page.Runs)), "", nil}
	db := starling.Over(log, starling.Options{})
	for _, run := range page.Runs {
		v, err := db.Validate(ctx, run.RunID)
		if err != nil { // which does not make the run invalid
			return []Finding{count, {"newest runs", StateBad, "not checked: " + starling.PlainError(err), display.Command("starling-host validate", store.Name(where)), nil}}
		}
		if err = v.Err; errors.Is(err, eventlog.ErrSchemaTooNew) {
			newest.State, newest.Found = StateLimited, "update this program: "+eventlog.Corruption(err)
			continue
		}
		if err != nil {
			newest.State, newest.Fix = StateBad, display.Command("starling-host validate", store.Name(where))
			newest.Found = "not valid: " + eventlog.Corruption(err)
			break
		}
	}
	return []Finding{count, newest}
}

func checkLayout(ctx context.Context, log store.Database, path string) Finding {
	const check = "layout"
	version, want, err := log.SchemaVersions(ctx)
	if err == nil {
		err = eventlog.CheckSchema(version, want)
	}
	switch {
	case errors.Is(err, eventlog.ErrSchemaOutdated) && version == 0 && store.OnServer(path): // a file then has the Starling runtime's
		return Finding{check, StateBad, "there are no tables yet", display.Command("starling-host migrate", store.Name(path)), nil}
	case errors.Is(err, eventlog.ErrSchemaOutdated):
		return Finding{check, StateLimited, fmt.Sprintf("version %d is read-only", version), display.Command("starling-host migrate", store.Name(path)), nil}
	case err != nil:
		return Finding{check, StateBad, starling.PlainError(err), "", nil}
	}
	return Finding{check, StateOK, fmt.Sprintf("version %d", version), "", nil}
}

// checkHostTables looks for missing tables, which only the owner of a server's tables can create.
func checkHostTables(ctx context.Context, log store.Database, where string) Finding {
	const check = "host tables"
	missing, err := MissingTables(ctx, log)
	switch {
	case err != nil:
		return Finding{check, StateBad, starling.PlainError(err), "", nil}
	case len(missing) > 0:
		return Finding{check, StateLimited, "older or not there: " + NamesOf(missing), display.Command("starling-host migrate", store.Name(where)), nil}
	}
	return Finding{check, StateOK, "as this program makes them", "", nil}
}

// checkRights reports the uses of a server, where all tables are, for which the role that the log was
// opened as has the rights. A role that may not serve can be intended.
func checkRights(ctx context.Context, log store.Database) Finding {
	const check = "rights"
	needs := store.NeedsOf(Tables()...)
	var role string
	var may, toServe []string
	for _, use := range []struct {
		name  string
		needs []store.Need
	}{{"serve", needs.Writer}, {"prune", needs.Retention}, {"read", needs.Reader}} {
		as, lacking, err := log.(*store.Server).Lacking(ctx, use.needs...)
		if err != nil {
			return refusal(check, err)
		}
		if role = as; len(lacking) == 0 {
			may = append(may, use.name)
		} else if use.name == "serve" {
			toServe = lacking
		}
	}
	f := Finding{check, StateOK, role + " may " + strings.Join(may, ", "), "", nil}
	if len(toServe) == 0 {
		return f
	}
	if f.State = StateLimited; len(may) == 0 {
		f.State, f.Found = StateBad, role+" may not even read all tables"
	}
	f.Found += "; to serve it lacks " + someOf(toServe)
	f.Fix = "for a host, as the owner of the tables: " + grantCommand(role, "host")
	return f
}

// grantCommand returns the command that gives a role the rights for a use.
func grantCommand(role, use string) string {
	return fmt.Sprintf("starling-host migrate postgres://OWNER@... --%s-role %s", use, display.ShellWord(role))
}

// someOf lists the first of many names.
func someOf(lacking []string) string {
	const few = 3
	if len(lacking) <= few {
		return strings.Join(lacking, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(lacking[:few], ", "), len(lacking)-few)
}

// MissingTables returns the sets of tables that the database has in an older version, and on a server
// also those that it lacks: in a file, whatever needs them creates them.
func MissingTables(ctx context.Context, log store.Database) (missing []eventlog.TableSet, err error) {
	_, server := log.(*store.Server)
	for _, set := range Tables() {
		taken, err := log.TableSteps(ctx, set)
		switch {
		case server && errors.Is(err, eventlog.ErrSchemaOutdated), err == nil && taken < len(set.Steps) && (server || taken > 0):
			missing = append(missing, set)
		case err != nil && !errors.Is(err, eventlog.ErrSchemaOutdated):
			return nil, err
		}
	}
	return missing, nil
}

// NamesOf joins the names of sets of tables.
func NamesOf(sets []eventlog.TableSet) string {
	return strings.Join(lists.Map(sets, func(set eventlog.TableSet) string { return set.Name }), ", ")
}
