package inspect

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/profile"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
)

// Bounds of a flame graph.
const (
	flameShare  = 1 << 13 // a function has a frame if it spent more than this part of the run
	flameLevels = 40      // below the frame that is shown
	flameFrames = 1500
	flameWidth  = 0.0008 // of the narrowest frame
	flameTop    = 30     // functions and lines of the tables
	maxLines    = 10_000 // that are kept
	maxAgain    = 5000   // events of a run that is read for each look at the progress
)

// flame shows where the fuel of a run went.
type flame struct {
	Task      taskState
	Diverged  *agent.Divergence // the execution was not the one on record
	Crumbs    []link
	Shown     *profile.Frame
	Share     string // of the run, that the frame spent
	Height    int
	Frames    []flameFrame
	Functions []flameFunction
	Lines     []guest.Line // of the function that is shown, or of all
	Call      string       // path of the call in the waterfall
	Smaller   bool         // some frames are not drawn
	Notes     []string     // what the figures mean
}

// flameFrame is a rectangle.
type flameFrame struct {
	Path, Name, Text, Class string
	X, W                    string
	Y                       int
}

// flameFunction is a function with what it spent in all stacks that are shown.
type flameFunction struct {
	Name, Path  string
	Self, Calls uint64
	Share       string
}

// fuelOfRun is what was measured.
type fuelOfRun struct {
	root    *profile.Frame
	events  []uint64     // of the calls, by their index in root; 0 is unknown
	lines   []guest.Line // those that spent most first
	scripts []string     // their languages, if they are of scripts
	problem string       // why names or lines are missing
	verdict agent.Verdict
}

const fuelRow = 19 // pixels

// scriptNote returns what the figures of a script mean.
func scriptNote(language string) string {
	const calls = " A function that continues after an await or a yield counts as another call."
	if language == "Python" {
		return "A line of Python counts as executed when its function begins with it, or comes to it from another line; a loop within a line counts once." + calls
	}
	return "QuickJS tells its place only with operations that call or can fail. So lines of JavaScript without one are missing, and how often a line was executed is not known." + calls
}

func fuelTask(ctx context.Context, v eventview.View, run eventlog.RunSummary) string {
	return taskOf(ctx, v, "fuel "+run.Head.String(), run.RunID)
}

// fuel shows what was measured of the run. While a long one is executed the page loads again and
// again, and does not read it.
func (b *reader) fuel(w http.ResponseWriter, r *http.Request) error {
	p := &flame{}
	var result any
	p.Task, result = b.look(w, b.view, fuelTask(r.Context(), b.view, b.run), b.runPath(b.run.RunID, viewFuel, 0))
	if p.Task.Running && b.run.LastSeq > maxAgain {
		b.did = &span.Run{}
	} else if err := b.read(r, nil); err != nil {
		return err
	}
	if found, ok := result.(*fuelOfRun); ok && found != nil {
		p.draw(b, found, r.URL.Query().Get("in"))
	}
	b.page.Fuel = p
	return nil
}

// executeForFuel begins or cancels the execution of a run.
func (s *Server) executeForFuel(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	run, err := v.Run(r.Context(), r.PathValue("run"))
	if err != nil {
		return err
	}
	return s.command(w, r, v, fuelTask(r.Context(), v, run), s.runPath(run.RunID, viewFuel, 0), func(ctx context.Context, t *task) (any, error) { return measureFuel(ctx, v, run, t) })
}

// measureFuel executes a run again and attributes its fuel to functions.
func measureFuel(ctx context.Context, v eventview.View, run eventlog.RunSummary, t *task) (*fuelOfRun, error) {
	if err := v.Reserve(ctx, run.RunID); err != nil {
		return nil, err
	}
	var b span.Builder
	for ev, err := range v.Events(ctx, run.RunID, 0) {
		if err == nil {
			err = b.Add(ev)
		}
		if err != nil {
			return nil, err
		}
	}
	started, err := v.Started(ctx, run.RunID)
	if err != nil {
		return nil, err
	}
	symbols := guest.NewSymbols(ctx, started, v.Modules, nil)
	calls := map[string][]uint64{} // their events, by tool and fuel: equal ones have equal frames
	for i := range b.Run().Spans {
		if c := &b.Run().Spans[i]; c.Kind == span.Call {
			key := fmt.Sprint(c.Fuel, " ", symbols.Original(c.Name))
			calls[key] = append(calls[key], c.First)
		}
	}
	all := b.Run().Fuel
	b = span.Builder{}                        // an execution may last minutes
	give, err := share.Take(ctx, sourceBytes) // in the memory of the tenant
	if err != nil {
		return nil, err
	}
	defer give()
	sources := guest.NewSources(work.New(ctx, work.Limits{Bytes: sourceBytes}))
	measured := profile.New("", func(tool string, index uint32) string {
		digest, _ := symbols.Module(tool)
		return sources.Name(digest, index)
	})
	x, err := v.Execute(ctx, eventview.Execution{Observers: sandbox.Observers{
		Profile: func(tool string) sandbox.Profiler { return measured.Call(tool) },
		Source: func(tool string) sandbox.Source {
			if digest, ok := symbols.Module(tool); ok {
				return sources.Add(digest)
			}
			return nil
		},
		Progress: t.spending(all),
	}})
	if err != nil {
		return nil, err
	}
	defer x.Close()
	verdict, err := x.Replay(ctx, run.RunID)
	if err != nil {
		return nil, err
	}
	found := &fuelOfRun{root: &profile.Frame{Name: "run", Imported: true}, verdict: verdict}
	for _, tree := range measured.Trees(flameShare) {
		found.root.Total += tree.Total
		found.root.Callees = append(found.root.Callees, tree)
		key, seq := fmt.Sprint(tree.Total, " ", tree.Name), uint64(0)
		if same := calls[key]; len(same) > 0 {
			seq, calls[key] = same[0], same[1:]
		}
		found.events = append(found.events, seq)
	}
	found.lines, found.problem = sources.Lines(), sources.Problem()
	scripts := map[guest.Line]*guest.Line{} // by what is not a sum
	for _, c := range measured.Calls() {
		digest, _ := symbols.Module(c.Tool)
		language := sources.Language(digest)
		c.Lines(func(name, file string, number int, times, fuel uint64) {
			if !slices.Contains(found.scripts, language) {
				found.scripts = append(found.scripts, language)
			}
			if language != "Python" {
				times = 0 // not known
			}
			key := guest.Line{Name: name, File: file, Line: number}
			if scripts[key] == nil {
				sum := key
				scripts[key] = &sum
			}
			scripts[key].Executed += times
			scripts[key].Fuel += fuel
		})
	}
	for _, l := range scripts {
		found.lines = append(found.lines, *l)
	}
	found.lines = slices.DeleteFunc(found.lines, func(l guest.Line) bool { return l.Fuel == 0 })
	slices.SortStableFunc(found.lines, func(a, b guest.Line) int {
		return cmp.Or(cmp.Compare(b.Fuel, a.Fuel), strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	found.lines = slices.Clone(found.lines[:min(len(found.lines), maxLines)])
	return found, nil
}

// sourceBytes is how much memory an execution takes for what processes report of the source of modules.
const sourceBytes = 8 << 20

func (p *flame) draw(b *reader, found *fuelOfRun, in string) {
	id := b.run.RunID
	if i := slices.Index(found.events, b.selected); in == "" && b.selected > 0 && i >= 0 {
		in = strconv.Itoa(i)
	}
	path := func(in string) string { return address(b.runPath(id, viewFuel, 0), map[string][]string{"in": {in}}) }
	shown, steps := found.root, []string(nil)
	for step := range strings.SplitSeq(in, ".") {
		i, err := strconv.ParseUint(step, 10, 31)
		if err != nil || i >= uint64(len(shown.Callees)) {
			break
		}
		p.Crumbs = append(p.Crumbs, link{Name: line(shown.Name), Path: path(strings.Join(steps, "."))})
		if len(steps) == 0 && found.events[i] > 0 {
			p.Call = b.runPath(id, viewWaterfall, found.events[i])
		}
		shown, steps = shown.Callees[i], append(steps, step)
	}
	all := max(found.root.Total, 1)
	p.Diverged, p.Shown, p.Share = found.verdict.Divergence, shown, shareOf(shown.Total, all)
	if found.problem != "" {
		p.Notes = append(p.Notes, "Some names and lines are missing: "+line(found.problem)+".")
	}
	for _, language := range found.scripts {
		p.Notes = append(p.Notes, scriptNote(language))
		if language != "Python" {
			p.Notes = append(p.Notes, "The fuel of a line of JavaScript is approximate: it includes that of missing lines behind it.")
		}
	}
	if len(found.scripts) > 0 {
		p.Notes = append(p.Notes, profile.Interpreter+" is what was spent outside of the script's functions: to start the interpreter, and in its own code and that of the SDK.")
	}
	type place struct {
		*profile.Frame
		in    string
		depth int // below the frame that is shown
		x     float64
	}
	functions := map[string]*flameFunction{}
	var smaller flameFunction // those without a row
	others := 0
	largest := map[string]uint64{}
	for next := []place{{shown, strings.Join(steps, "."), 0, 0}}; len(next) > 0; next = next[1:] {
		f := next[0]
		width := float64(f.Total) / float64(max(shown.Total, 1))
		to, level := path(f.in), len(steps)+f.depth
		if level > 1 { // not the run and its calls
			sum := functions[f.Name]
			if sum == nil {
				sum = &flameFunction{Name: display.Printable(f.Name)}
				functions[f.Name] = sum
			}
			sum.Self, sum.Calls = sum.Self+f.Self, sum.Calls+f.Calls
			if f.Total >= largest[f.Name] {
				largest[f.Name], sum.Path = f.Total, to
			}
		}
		others, smaller.Self, p.Smaller = others+f.Smaller, smaller.Self+f.SmallerFuel, p.Smaller || f.Smaller > 0
		if f.depth >= flameLevels || width < flameWidth || len(p.Frames) >= flameFrames {
			p.Smaller = true
		} else {
			frame := flameFrame{
				Path: to, Class: flameClass(f.Frame, level), X: percent(f.x), W: percent(width), Y: f.depth * fuelRow,
				Name: fmt.Sprintf("%s: %s of fuel, %s", display.Printable(f.Name), display.Fuel(f.Total), shareOf(f.Total, all)),
			}
			if width > 0.04 {
				frame.Text = shortFunction(display.Printable(f.Name))
			}
			p.Frames = append(p.Frames, frame)
			p.Height = max(p.Height, frame.Y+fuelRow)
		}
		x := f.x
		for i, callee := range f.Callees {
			next = append(next, place{callee, strings.TrimPrefix(f.in+"."+strconv.Itoa(i), "."), f.depth + 1, x})
			x += float64(callee.Total) / float64(max(shown.Total, 1))
		}
	}
	for _, f := range functions {
		p.Functions = append(p.Functions, *f)
	}
	slices.SortFunc(p.Functions, func(a, b flameFunction) int {
		return cmp.Or(cmp.Compare(b.Self, a.Self), strings.Compare(a.Name, b.Name))
	})
	for _, f := range p.Functions[min(len(p.Functions), flameTop):] {
		others, smaller.Self, smaller.Calls = others+1, smaller.Self+f.Self, smaller.Calls+f.Calls
	}
	p.Functions = p.Functions[:min(len(p.Functions), flameTop)]
	if others > 0 {
		smaller.Name = display.Plural(others, "smaller function") + ", counted wherever they were called"
		p.Functions = append(p.Functions, smaller)
	}
	for i, f := range p.Functions {
		p.Functions[i].Share = shareOf(f.Self, max(shown.Total, 1))
	}
	for _, l := range found.lines {
		if len(p.Lines) < flameTop && (len(steps) < 2 || lineOf(shown, l)) {
			l.Name, l.File = line(l.Name), line(l.File)
			p.Lines = append(p.Lines, l)
		}
	}
}

// lineOf reports whether a line is one of a function.
func lineOf(f *profile.Frame, l guest.Line) bool {
	if f.File != "" {
		return l.File == f.File && l.Name == f.Name
	}
	return !f.Imported && l.Function == f.Function
}

// flameClass returns the colour of a frame: functions of a package have the same.
func flameClass(f *profile.Frame, depth int) string {
	switch {
	case depth <= 1:
		return "fl-call"
	case f.Imported:
		return "fl-host"
	}
	hash := fnv.New32a()
	hash.Write([]byte(cmp.Or(f.File, packageOf(f.Name))))
	return "fl-" + strconv.Itoa(int(hash.Sum32()%6))
}

// packageOf returns the part of the name of a function that others of its package, crate or class
// begin with.
func packageOf(name string) string {
	name, _, _ = strings.Cut(strings.TrimLeft(name, "_<"), "(") // a method of a trait begins with both
	if base := name[strings.LastIndex(name, "/")+1:]; strings.ContainsAny(base, ".:") {
		return strings.TrimRight(name[:len(name)-len(base)+strings.IndexAny(base, ".:")], ".:")
	}
	return ""
}

// shortFunction leaves out the folders of a package.
func shortFunction(name string) string {
	head, args, _ := strings.Cut(name, "(")
	if i := strings.LastIndex(head, "/"); i >= 0 {
		return strings.TrimSuffix(head[i+1:]+"("+args, "(")
	}
	return name
}

func shareOf(n, all uint64) string { return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(all)) }
