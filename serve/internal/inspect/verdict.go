package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
)

// verdict is the result of checking a run.
type verdict struct {
	What, Again string // Validation or Replay, and the path that repeats it
	Status      state
	Sentence    string
	Facts       []fact
	Event       string // path of the event that it is about, or empty
	EventName   string
	Code        string // the functions in which it diverged or was stopped, innermost first, or empty
	Compared    bool   // show the following fields
	Same        string // the common beginning of the recorded and the replayed value
	Expected    string // the rest of the recorded one
	Got         string // the rest of the replayed one
	Explanation string

	at     time.Time
	events uint64 // of the run, when it was checked
}

// verdicts are the results of the last checks, by the whole id of the run and the check. Each has
// an address, so that it can be shared while this process keeps it.
type verdicts struct {
	mu   sync.Mutex
	of   map[[2]string]verdict // guarded by mu
	keys [][2]string           // the oldest first; guarded by mu
}

// Bounds of the results that are kept, and of the values that they compare.
const (
	maxVerdicts = 256
	maxValue    = 8 << 10 // bytes
)

func (k *verdicts) put(key [2]string, v verdict) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.of[key]; !known {
		k.keys = append(k.keys, key)
	}
	k.of[key] = v
	if len(k.keys) > maxVerdicts {
		delete(k.of, k.keys[0])
		k.keys = k.keys[1:]
	}
}

func (k *verdicts) get(key [2]string) (verdict, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, known := k.of[key]
	return v, known
}

const (
	aboutValidation = "The hash chain, the Merkle root, the numbering, the pairs of calls and outcomes and the canonical form of every payload were recomputed from the database. Nothing was executed."
	aboutReplay     = "The run was executed again with its host calls answered from the log, and every event was compared, byte for byte."
	aboutNoReplay   = "The run was not executed again. A replay needs a valid log and the tools that it names."
)

// checks are what can be done with a run.
var checks = map[string]struct {
	name, never string
	do          func(s *Server, ctx context.Context, v eventview.View, id string, out *verdict) error
}{
	"validate": {"Validation", "This server has not validated the run yet, or no longer has the result.", (*Server).validate},
	"replay":   {"Replay", "This server has not executed the run again yet, or no longer has the result.", (*Server).replay},
}

// check checks a run, and leads to the address of the result.
func check(what string) page {
	return func(s *Server, w http.ResponseWriter, r *http.Request, v eventview.View) error {
		run, err := v.Run(r.Context(), r.PathValue("run"))
		if err != nil {
			return err
		}
		began, out := time.Now(), verdict{What: checks[what].name, events: run.LastSeq}
		if err := checks[what].do(s, r.Context(), v, run.RunID, &out); err != nil {
			return err
		}
		out.at = time.Now()
		out.Facts = append(out.Facts, fact{"took", display.Duration(out.at.Sub(began))})
		s.verdicts.put([2]string{v.Namespace + "/" + run.RunID, what}, out)
		http.Redirect(w, r, s.path("runs", run.RunID, what), http.StatusSeeOther)
		return nil
	}
}

// checked shows a run below the result of a check, if this process has it. It executes nothing.
func checked(what string) page {
	return func(s *Server, w http.ResponseWriter, r *http.Request, v eventview.View) error {
		if what == "replay" && !v.CanReplay() {
			return eventlog.ErrRunNotFound
		}
		return s.showRun(w, r, v, viewWaterfall, func(run eventlog.RunSummary) *verdict {
			out, known := s.verdicts.get([2]string{v.Namespace + "/" + run.RunID, what})
			if !known {
				out = verdict{What: checks[what].name, Status: state{"not known", "open"}, Sentence: checks[what].never}
			} else {
				out.Facts = append(slices.Clip(out.Facts), fact{"checked", ago(time.Since(out.at))})
			}
			if known && out.events != run.LastSeq {
				out.Facts = append(out.Facts, fact{"since then", display.Plural(run.LastSeq-out.events, "event")})
			}
			out.Again = s.path("runs", run.RunID, what)
			return &out
		})
	}
}

func (s *Server) validate(ctx context.Context, v eventview.View, id string, out *verdict) error {
	report, err := v.Check(ctx, id)
	if ctx.Err() != nil || errors.Is(err, share.ErrBusy) {
		return cmp.Or(ctx.Err(), err)
	}
	if err != nil && !eventlog.IsVerdict(err) {
		return err
	}
	s.describeCheck(id, report, err, out)
	return nil
}

func (s *Server) replay(ctx context.Context, v eventview.View, id string, out *verdict) error {
	result, err := v.Replay(ctx, id)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, eventview.ErrNoReplay):
		return &status{http.StatusNotFound, "Runs cannot be replayed here."}
	case errors.Is(err, share.ErrBusy), errors.Is(err, eventlog.ErrUnavailable):
		return err
	}
	s.describeReplay(id, result, err, out)
	if err == nil {
		out.Code = display.PrintableText(display.Clip(strings.Join(v.Where(ctx, id, result.Divergence), "\n"), maxValue))
	}
	return nil
}

// describeCheck describes the result of checking a run.
func (s *Server) describeCheck(id string, report eventlog.Report, err error, p *verdict) {
	p.Explanation = aboutValidation
	if err != nil {
		s.describeCorruption(id, err, p)
		return
	}
	p.Status, p.Sentence = state{"valid", "good"}, fmt.Sprintf("All %s are unchanged.", display.Plural(report.Events, "event"))
	if report.Open {
		p.Status = state{"valid, open", "open"}
		p.Sentence = fmt.Sprintf("All %s so far are unchanged. The run has not ended: it is in progress, or its process died.", display.Plural(report.Events, "event"))
	} else {
		p.Facts = append(p.Facts, fact{"Merkle root", report.Root.String()})
	}
	p.Facts = append(p.Facts, fact{"hash of the last event", report.Head.String()})
	if report.Encrypted > 0 {
		p.Facts = append(p.Facts, fact{"encrypted events", display.Digits(report.Encrypted)})
	}
}

// describeCorruption describes where a run breaks a rule.
func (s *Server) describeCorruption(id string, err error, p *verdict) {
	p.Status = state{"invalid", "bad"}
	var corrupt *eventlog.CorruptError
	if !errors.As(err, &corrupt) {
		p.Sentence = display.PrintableError(err)
		return
	}
	if corrupt.Newer {
		p.Status = state{"newer", "warn"}
	}
	p.Sentence = display.Printable(corrupt.Reason)
	if corrupt.Invariant != "" {
		p.Facts = append(p.Facts, fact{"rule", corrupt.Invariant})
	}
	s.point(id, corrupt.Seq, corrupt.Kind, p)
}

// point leads to an event. One past the last does not exist.
func (s *Server) point(id string, seq uint64, kind event.Kind, p *verdict) {
	if seq == 0 {
		return
	}
	p.EventName = fmt.Sprintf("event %d", seq)
	if kind != 0 {
		p.EventName += ", " + kind.String()
		p.Event = s.runPath(id, viewWaterfall, seq)
	}
}

// describeReplay describes the result of a replay.
func (s *Server) describeReplay(id string, result agent.Verdict, err error, p *verdict) {
	p.Explanation = aboutReplay
	if err != nil {
		p.Explanation = aboutNoReplay
	}
	d := result.Divergence
	switch {
	case errors.Is(err, eventlog.ErrLogCorrupt), errors.Is(err, eventlog.ErrSchemaTooNew):
		s.describeCorruption(id, err, p)
	case err != nil:
		p.Status, p.Sentence = state{"not replayed", "warn"}, display.PrintableError(err)
	case d != nil:
		s.describeDivergence(id, d, p)
	case result.Open:
		p.Status = state{"identical so far", "open"}
		p.Sentence = fmt.Sprintf("The replay produced the same %s; the recording ends there.", display.Plural(result.Events, "event"))
	default:
		p.Status = state{"identical", "good"}
		p.Sentence = fmt.Sprintf("The replay produced the same %s, byte for byte.", display.Plural(result.Events, "event"))
	}
}

func (s *Server) describeDivergence(id string, d *agent.Divergence, p *verdict) {
	p.Status, p.Sentence = state{"diverged", "bad"}, display.Printable(d.Reason)
	if p.Sentence == "" {
		p.Sentence = "The replay diverged from the recording."
	}
	s.point(id, d.Seq, d.ExpectedKind, p)
	p.Facts = append(p.Facts, fact{"class", string(d.Class)})
	if d.Kind != d.ExpectedKind {
		p.Facts = append(p.Facts, fact{"recorded", agent.KindName(d.ExpectedKind)}, fact{"replayed", agent.KindName(d.Kind)})
	}
	if d.Field != "" {
		p.Facts = append(p.Facts, fact{"field", display.Printable(d.Field)})
	}
	if d.Expected != "" || d.Got != "" {
		p.Compared = true
		p.Same, p.Expected, p.Got = apart(display.PrintableText(display.Clip(d.Expected, maxValue)), display.PrintableText(display.Clip(d.Got, maxValue)))
	}
}

// apart splits two texts where they part, and leaves out most of a long beginning.
func apart(a, b string) (same, restA, restB string) {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && (n < len(a) && !utf8.RuneStart(a[n]) || n < len(b) && !utf8.RuneStart(b[n])) {
		n--
	}
	same, restA, restB = a[:n], a[n:], b[n:]
	if from := len(same) - sameShown; from > 0 {
		for !utf8.RuneStart(same[from]) {
			from++
		}
		same = "..." + same[from:]
	}
	return same, restA, restB
}

// sameShown is how much is shown of the common part of two values, in bytes.
const sameShown = 300
