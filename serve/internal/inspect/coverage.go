package inspect

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/profile"
	"github.com/starling-host/starling/serve/internal/eventview"
)

// Bounds of what executes several runs again.
const (
	maxLooked   = 2000 // runs whose first event is read
	maxExecuted = 50
	maxScripted = 10_000 // functions of a script
	maxCovered  = 1000   // rows
)

// coveragePage shows which functions of a module recorded runs execute.
type coveragePage struct {
	Module   string
	Tools    []string
	Task     taskState
	Facts    []fact
	Notes    []string
	Packages []coveredPackage
	Opened   string // the package whose functions are shown
	Back     string
}

// coveredPackage is a package of a module, or a function.
type coveredPackage struct {
	Name, Path      string
	Functions, Hit  int
	Percent         string
	Calls, Fuel     uint64
	Lines, LinesHit int
	Missing         string // lines of a function that were not executed
	Reached         string // lines of a function of a script that were
}

// coverage is what was found.
type coverage struct {
	of                 []string // the runs that it was made of
	runs, failed, more int      // executed, not executed for a reason, and left out
	reason             string
	functions          []coveredFunction // all of the module, the imports first, and those of its script that ran
	first              int               // the first that is shown
	scripted           map[[2]string]int // the index of functions of a script, by file and name
	language           string            // of the script
	problem            string            // why names or lines are missing
	fuel               uint64
}

type coveredFunction struct {
	name        string
	calls, fuel uint64
	runs        int
	lines, hit  int
	missing     string // lines that were not executed
	file        string // of a script
	reached     map[int]bool
}

// index returns where a function of the module is, or of its script if it has a file.
func (found *coverage) index(name, file string, function uint32) (i int, ok bool) {
	if file == "" {
		return int(function), int64(function) < int64(len(found.functions))
	}
	key := [2]string{file, name}
	if i, ok = found.scripted[key]; ok || len(found.scripted) == maxScripted {
		return i, ok
	}
	if len(found.scripted) == 0 { // those of the interpreter are not shown
		found.scripted, found.first = map[[2]string]int{}, len(found.functions)
	}
	i = len(found.functions)
	found.scripted[key] = i
	found.functions = append(found.functions, coveredFunction{name: name, file: file, reached: map[int]bool{}})
	return i, true
}

// moduleOf returns the digest that an address names.
func moduleOf(text string) (digest canon.Hash, err error) {
	if n, err := hex.Decode(digest[:], []byte(text[:min(len(text), 2*len(digest))])); err != nil || n != len(digest) || len(text) != 2*n {
		return digest, eventlog.ErrRunNotFound
	}
	return digest, nil
}

func (s *Server) coverage(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	digest, err := moduleOf(r.PathValue("digest"))
	if err != nil {
		return err
	}
	used, err := runsOf(r.Context(), v, "", digest)
	if err != nil {
		return err
	}
	if len(used.runs) == 0 {
		return eventlog.ErrRunNotFound // also for a module of another tenant
	}
	page, key := s.path("modules", digest.String(), "coverage"), "coverage "+digest.String()
	if r.Method == http.MethodPost {
		return s.command(w, r, v, key, page, func(ctx context.Context, t *task) (any, error) { return cover(ctx, v, digest, used, t) })
	}
	p := coveragePage{Module: digest.String(), Tools: slices.Sorted(maps.Keys(used.tools)), Back: page}
	var result any
	p.Task, result = s.look(w, v, key, page)
	gone := func(id string) bool { return !slices.Contains(used.runs, id) }
	if found, ok := result.(*coverage); ok && found != nil && slices.ContainsFunc(found.of, gone) {
		p.Notes = append(p.Notes, "A run that was executed has been removed since then. Execute again.")
	} else if ok && found != nil {
		p.show(found, page, r.URL.Query().Get("in"))
	}
	s.render(w, r, http.StatusOK, "coverage", "Coverage of "+digest.String(), v, p)
	return nil
}

// usedRuns are runs that may call a tool, or a tool of a module.
type usedRuns struct {
	runs  []string        // the newest first
	other int             // runs that also use other modules, which are left out
	more  bool            // older runs were not looked at
	tools map[string]bool // of the module
}

// runsOf returns the newest runs that use a tool and one module alone, or, if the tool is empty, that
// use the module of a digest.
func runsOf(ctx context.Context, v eventview.View, tool string, digest canon.Hash) (used usedRuns, err error) {
	used.tools = map[string]bool{}
	for id, err := range newest(ctx, v, maxLooked, &used.more) {
		if err != nil {
			return used, err
		}
		started, err := v.Started(ctx, id)
		if err != nil {
			continue // encrypted or corrupt, which its own page says
		}
		modules := map[string]bool{}
		found := false
		for _, ref := range started.ToolSchemas {
			if ref.Sandbox == nil {
				continue
			}
			modules[string(ref.Sandbox.Module)] = true
			if tool != "" && ref.Name == tool || tool == "" && string(ref.Sandbox.Module) == string(digest[:]) {
				found, used.tools[ref.Name] = true, true
			}
		}
		switch {
		case !found:
		case tool != "" && len(modules) > 1:
			used.other++
		default:
			used.runs = append(used.runs, id)
		}
	}
	return used, nil
}

// newest yields the ids of the newest runs, and sets more if there are older ones.
func newest(ctx context.Context, v eventview.View, most int, more *bool) func(yield func(string, error) bool) {
	return func(yield func(string, error) bool) {
		for o := (eventlog.RunPageOptions{Limit: eventlog.MaxPageLimit}); o.Offset < most; {
			page, err := v.Runs(ctx, o)
			if err != nil {
				yield("", err)
				return
			}
			for _, run := range page.Runs {
				if !yield(run.RunID, nil) {
					return
				}
			}
			o.Offset += len(page.Runs)
			if *more = o.Offset < page.TotalMatching; !*more || len(page.Runs) == 0 {
				return
			}
		}
	}
}

// cover executes runs again and adds up which functions of a module they execute.
func cover(ctx context.Context, v eventview.View, digest canon.Hash, used usedRuns, t *task) (*coverage, error) {
	found := &coverage{more: max(len(used.runs)-maxExecuted, 0)}
	sources, give, err := newSources(ctx)
	if err != nil {
		return nil, err
	}
	defer give()
	var measured *profile.Profile
	var symbols *guest.Symbols
	x, err := v.Execute(ctx, eventview.Execution{Observers: sandbox.Observers{
		Profile: func(tool string) sandbox.Profiler { return measured.Call(tool) },
		Source:  func(tool string) sandbox.Source { return sources.of(symbols)(tool) },
	}})
	if err != nil {
		return nil, err
	}
	defer x.Close()
	runs := used.runs[:min(len(used.runs), maxExecuted)]
	for i, id := range runs {
		t.report(uint64(i), uint64(len(runs)), "runs")
		measured = profile.New("", nil)
		if symbols, err = symbolsOf(ctx, v, id); err == nil {
			_, err = x.Replay(ctx, id)
		}
		if ctx.Err() != nil {
			found.addLines(sources, digest)
			return found, ctx.Err()
		}
		if err != nil {
			found.failed++
			found.reason = cmp.Or(found.reason, display.PrintableError(err))
			continue
		}
		found.of = append(found.of, id)
		found.runs++
		found.addFunctions(sources, digest)
		hit := map[int]bool{}
		for _, c := range measured.Calls() {
			if of, _ := symbols.Module(c.Tool); of != digest {
				continue
			}
			c.Functions(func(name, file string, index uint32, calls, fuel uint64) {
				i, ok := found.index(name, file, index)
				if !ok {
					return
				}
				f := &found.functions[i]
				f.calls, f.fuel, found.fuel = f.calls+calls, f.fuel+fuel, found.fuel+fuel
				if !hit[i] {
					hit[i] = true
					f.runs++
				}
			})
			c.Lines(func(name, file string, line int, _, _ uint64) {
				if i, ok := found.index(name, file, 0); ok && line > 0 {
					found.functions[i].reached[line] = true
					found.functions[i].hit = len(found.functions[i].reached)
				}
			})
		}
	}
	found.addLines(sources, digest)
	return found, nil
}

// addFunctions takes the functions of the module, which are known once it was called.
func (found *coverage) addFunctions(s sources, digest canon.Hash) {
	if len(found.functions) > 0 {
		return
	}
	functions, imports, language := s.Functions(digest)
	found.first, found.language = imports, language
	for _, f := range functions {
		found.functions = append(found.functions, coveredFunction{name: f.Name, lines: f.Lines})
	}
}

// addLines takes the lines of the functions that were called, in their order.
func (found *coverage) addLines(s sources, digest canon.Hash) {
	found.addFunctions(s, digest)
	found.problem = s.Problem()
	named := guest.Line{} // the last one with its file
	for _, l := range s.Lines(&digest) {
		f := &found.functions[l.Function]
		switch {
		case l.Executed > 0:
			f.hit++
		case f.runs == 0 || len(f.missing) > maxLine: // all are missing, or very many
		default:
			place := strconv.Itoa(l.Line)
			if named.Function != l.Function || named.File != l.File {
				place, named = path.Base(l.File)+":"+place, l
			}
			f.missing += ", " + place
		}
	}
}

func (p *coveragePage) show(found *coverage, page, in string) {
	packages := map[string]*coveredPackage{}
	hit, all := 0, len(found.functions)-found.first
	for i := found.first; i < len(found.functions); i++ {
		f := &found.functions[i]
		name := cmp.Or(f.file, packageOf(f.name), "(no package)")
		sum := packages[name]
		if sum == nil {
			sum = &coveredPackage{Name: display.Printable(name), Path: address(page, map[string][]string{"in": {name}})}
			packages[name] = sum
		}
		sum.Functions, sum.Calls, sum.Fuel = sum.Functions+1, sum.Calls+f.calls, sum.Fuel+f.fuel
		sum.Lines, sum.LinesHit = sum.Lines+f.lines, sum.LinesHit+f.hit
		if f.runs > 0 {
			hit++
			sum.Hit++
		}
		if in == name {
			p.Opened = display.Printable(in)
			reached := strings.Trim(fmt.Sprint(slices.Sorted(maps.Keys(f.reached))), "[]")
			p.Packages = append(p.Packages, coveredPackage{Reached: reached, Name: display.Printable(cmp.Or(f.name, fmt.Sprintf("func[%d]", i))), Calls: f.calls, Fuel: f.fuel, Hit: f.runs, Lines: f.lines, LinesHit: f.hit, Missing: display.Printable(strings.TrimPrefix(f.missing, ", "))})
		}
	}
	executed := fmt.Sprintf("%s of %s, %s", display.Digits(uint64(hit)), display.Digits(uint64(all)), shareOf(uint64(hit), uint64(max(all, 1))))
	if len(found.scripted) > 0 {
		executed = display.Digits(uint64(hit)) + " of the script"
		p.Notes = append(p.Notes, "Functions and lines are those of the script that runs have reached: those that none has are not known. "+scriptNote(found.language))
	}
	p.Notes = append(p.Notes, problemNote(found.problem)...)
	p.Facts = []fact{{"runs executed", display.Digits(uint64(found.runs))}, {"functions executed", executed}, {"fuel", display.Digits(found.fuel)}}
	if found.more > 0 {
		p.Notes = append(p.Notes, display.Plural(found.more, "older run")+" not executed: a page executes the newest "+display.Digits(maxExecuted)+".")
	}
	if found.failed > 0 {
		p.Notes = append(p.Notes, display.Plural(found.failed, "run")+" could not be executed: "+found.reason)
	}
	if p.Opened == "" {
		for _, sum := range packages {
			sum.Percent = percent(float64(sum.Hit) / float64(sum.Functions))
			p.Packages = append(p.Packages, *sum)
		}
	}
	slices.SortStableFunc(p.Packages, func(a, b coveredPackage) int {
		return cmp.Or(cmp.Compare(b.Fuel, a.Fuel), cmp.Compare(b.Hit, a.Hit), strings.Compare(a.Name, b.Name))
	})
	if more := len(p.Packages) - maxCovered; more > 0 {
		p.Packages = p.Packages[:maxCovered]
		p.Notes = append(p.Notes, "Only the first "+display.Digits(maxCovered)+" rows are shown, those that spent most; "+display.Digits(uint64(more))+" are left out.")
	}
}
