package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
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
	Seq         uint64     // of the event that it is about, or zero
	Kind        event.Kind // zero for an event that the run does not have
	Event       string     // path of that event
	Divergence  *agent.Divergence
	Code        string // the functions in which it diverged or was stopped, innermost first, or empty
	Compared    bool   // show the following fields
	Same        string // the common beginning of the recorded and the replayed value
	Expected    string // the rest of the recorded one
	Got         string // the rest of the replayed one
	Explanation string

	events uint64     // of the run, when it was checked
	last   canon.Hash // of them
}

// maxValue bounds the values that are compared, in bytes.
const maxValue = 8 << 10

const (
	aboutValidation = "The hash chain, the Merkle root, the numbering, the pairs of calls and outcomes and the canonical form of every payload were recomputed from the database. Nothing was executed."
	aboutReplay     = "The run was executed again with its host calls answered from the log, and every event was compared, byte for byte."
	aboutNoReplay   = "The run was not executed again. A replay needs a valid log and the tools that it names."
)

// checks are what can be done with a run.
var checks = map[string]struct {
	name, never string
	do          func(p *verdict, ctx context.Context, v eventview.View, id string) error
}{
	"validate": {"Validation", "This server has not validated the run yet, or no longer has the result.", (*verdict).validate},
	"replay":   {"Replay", "This server has not executed the run again yet, or no longer has the result.", (*verdict).replay},
}

// check shows a run below the result of a check, if this process has it. A form checks the run first,
// and leads to the address of the result.
func check(what string) page {
	return func(s *Server, w http.ResponseWriter, r *http.Request, v eventview.View) error {
		run, err := v.Run(r.Context(), r.PathValue("run"))
		if err != nil {
			return err
		}
		if what == "replay" && !v.CanReplay() {
			return eventlog.ErrRunNotFound
		}
		key, path := taskOf(r.Context(), v, what, run.RunID), s.path("runs", run.RunID, what)
		last := func(n uint64) canon.Hash {
			ev, _ := v.Event(r.Context(), run.RunID, n) // of one that cannot be read, the hash of none
			return ev.Hash()
		}
		out := verdict{What: checks[what].name, Again: path, events: run.LastSeq, last: last(run.LastSeq)}
		if r.Method == http.MethodPost {
			began := time.Now()
			if err := checks[what].do(&out, r.Context(), v, run.RunID); err != nil {
				return err
			}
			out.Event = s.runPath(run.RunID, viewWaterfall, out.Seq)
			s.tasks.keep(v.Namespace, key, began, out)
			http.Redirect(w, r, path, http.StatusSeeOther)
			return nil
		}
		t := s.tasks.find(v.Namespace, key)
		switch {
		case t == nil:
			out.Status, out.Sentence = stateOf("not known"), checks[what].never
		case t.result.(verdict).last != last(t.result.(verdict).events):
			out.Status, out.Sentence = stateOf("not known"), "The run was changed after the last check."
		default:
			now := out.events
			out = t.result.(verdict)
			out.Facts = append(slices.Clip(out.Facts), fact{"took", display.Duration(t.took)}, fact{"checked", ago(time.Since(t.began))})
			if now > out.events {
				out.Facts = append(out.Facts, fact{"since then", display.Plural(now-out.events, "event")})
			}
		}
		return s.showRun(w, r, v, run, viewWaterfall, &out)
	}
}

func (p *verdict) validate(ctx context.Context, v eventview.View, id string) error {
	report, err := v.Check(ctx, id)
	p.Explanation = aboutValidation
	events := display.Plural(report.Events, "event")
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && (errors.Is(err, share.ErrBusy) || !eventlog.IsVerdict(err)):
		return err
	case err != nil:
		p.describeCorruption(err)
		return nil
	case report.Open:
		p.Status = stateOf("valid, open")
		p.Sentence = fmt.Sprintf("All %s so far were unchanged. The run has not ended: it is in progress, or its process died.", events)
	default:
		p.Status, p.Sentence = stateOf("valid"), fmt.Sprintf("All %s were unchanged.", events)
		p.Facts = append(p.Facts, fact{"Merkle root", report.Root.String()})
	}
	p.Facts = append(p.Facts, fact{"hash of the last event", report.Head.String()})
	if report.Encrypted > 0 {
		p.Facts = append(p.Facts, fact{"encrypted events", display.Digits(report.Encrypted)})
	}
	return nil
}

func (p *verdict) replay(ctx context.Context, v eventview.View, id string) error {
	result, err := v.Replay(ctx, id)
	p.Explanation = aboutReplay
	if err != nil {
		p.Explanation = aboutNoReplay
	}
	events, d := display.Plural(result.Events, "event"), result.Divergence
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, share.ErrBusy), errors.Is(err, eventlog.ErrUnavailable):
		return err
	case errors.Is(err, eventlog.ErrLogCorrupt), errors.Is(err, eventlog.ErrSchemaTooNew):
		p.describeCorruption(err)
	case err != nil:
		p.Status, p.Sentence = stateOf("not replayed"), display.PrintableError(err)
	case d != nil:
		p.Divergence, p.Seq, p.Kind = d, d.Seq, d.ExpectedKind
		p.Status, p.Sentence = stateOf("diverged"), cmp.Or(display.Printable(d.Reason), "The replay diverged from the recording.")
		if d.Expected != "" || d.Got != "" {
			p.Compared = true
			p.Same, p.Expected, p.Got = apart(display.PrintableText(display.Clip(d.Expected, maxValue)), display.PrintableText(display.Clip(d.Got, maxValue)))
		}
	case result.Open:
		p.Status, p.Sentence = stateOf("identical so far"), fmt.Sprintf("The replay produced the same %s; the recording ends there.", events)
	default:
		p.Status, p.Sentence = stateOf("identical"), fmt.Sprintf("The replay produced the same %s, byte for byte.", events)
	}
	if err == nil {
		p.Code = display.PrintableText(display.Clip(strings.Join(v.Where(ctx, id, d), "\n"), maxValue))
	}
	return nil
}

// describeCorruption describes where a run breaks a rule.
func (p *verdict) describeCorruption(err error) {
	p.Status, p.Sentence = stateOf("invalid"), display.PrintableError(err)
	var corrupt *eventlog.CorruptError
	if !errors.As(err, &corrupt) {
		return
	}
	if corrupt.Newer {
		p.Status = stateOf("newer")
	}
	p.Sentence, p.Seq, p.Kind = display.Printable(corrupt.Reason), corrupt.Seq, corrupt.Kind
	if corrupt.Invariant != "" {
		p.Facts = append(p.Facts, fact{"rule", corrupt.Invariant})
	}
}

// apart splits two texts where they part, and leaves out most of a long beginning.
func apart(a, b string) (same, restA, restB string) {
	n := display.CommonPrefix(a, b)
	if same = a[:n]; n > sameShown {
		same = "..." + strings.ToValidUTF8(same[n-sameShown:], "")
	}
	return same, a[n:], b[n:]
}

// sameShown is how much is shown of the common part of two values, in bytes.
const sameShown = 300
