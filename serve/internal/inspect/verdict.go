package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
)

// verdictPage is the result of checking a run.
type verdictPage struct {
	Run         runHead
	What        string // Validation or Replay
	Status      state
	Sentence    string
	Facts       []fact
	Event       string // path of the event that it is about, or empty
	EventName   string
	Compared    bool   // show the following fields
	Same        string // the common beginning of the recorded and the replayed value
	Expected    string // the rest of the recorded one
	Got         string // the rest of the replayed one
	Took        string
	Explanation string
}

const (
	aboutValidation = "The hash chain, the Merkle root, the numbering, the pairs of calls and outcomes and the canonical form of every payload were recomputed from the database. Nothing was executed."
	aboutReplay     = "The run was executed again with its host calls answered from the log, and every event was compared, byte for byte."
	aboutNoReplay   = "The run was not executed again. A replay needs a valid log and the tools that it names."
)

func (s *Server) validate(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	return s.judge(w, r, v, "Validation", func(id string, p *verdictPage) error {
		report, err := v.Check(r.Context(), id)
		if r.Context().Err() != nil || errors.Is(err, share.ErrBusy) {
			return cmp.Or(r.Context().Err(), err)
		}
		if err != nil && !eventlog.IsVerdict(err) {
			return err
		}
		s.describeCheck(id, report, err, p)
		return nil
	})
}

func (s *Server) replay(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	return s.judge(w, r, v, "Replay", func(id string, p *verdictPage) error {
		verdict, err := v.Replay(r.Context(), id)
		switch {
		case r.Context().Err() != nil:
			return r.Context().Err()
		case errors.Is(err, share.ErrBusy):
			return err
		case errors.Is(err, eventview.ErrNoReplay):
			return &status{http.StatusNotFound, "Runs cannot be replayed here."}
		case errors.Is(err, eventlog.ErrUnavailable):
			return err
		}
		s.describeReplay(id, verdict, err, p)
		return nil
	})
}

// judge runs a slow check of a run, and shows the result.
func (s *Server) judge(w http.ResponseWriter, r *http.Request, v eventview.View, what string, judge func(id string, p *verdictPage) error) error {
	run, err := v.Run(r.Context(), r.PathValue("run"))
	if err != nil {
		return err
	}
	head, _ := s.runHead(r, v, run)
	p := verdictPage{Run: head, What: what}
	began := time.Now()
	if err := judge(run.RunID, &p); err != nil {
		return err
	}
	p.Took = display.Duration(time.Since(began))
	s.render(w, r, http.StatusOK, "verdict", what+" of "+run.RunID, v, p)
	return nil
}

// describeCheck describes the result of checking a run.
func (s *Server) describeCheck(id string, report eventlog.Report, err error, p *verdictPage) {
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
func (s *Server) describeCorruption(id string, err error, p *verdictPage) {
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
func (s *Server) point(id string, seq uint64, kind event.Kind, p *verdictPage) {
	if seq == 0 {
		return
	}
	p.EventName = fmt.Sprintf("event %d", seq)
	if kind != 0 {
		p.EventName += ", " + kind.String()
		p.Event = s.path("runs", id, "events", strconv.FormatUint(seq, 10))
	}
}

// describeReplay describes the result of a replay.
func (s *Server) describeReplay(id string, verdict agent.Verdict, err error, p *verdictPage) {
	p.Explanation = aboutReplay
	if err != nil {
		p.Explanation = aboutNoReplay
	}
	d := verdict.Divergence
	switch {
	case errors.Is(err, eventlog.ErrLogCorrupt), errors.Is(err, eventlog.ErrSchemaTooNew):
		s.describeCorruption(id, err, p)
	case err != nil:
		p.Status, p.Sentence = state{"not replayed", "warn"}, display.PrintableError(err)
	case d != nil:
		s.describeDivergence(id, d, p)
	case verdict.Open:
		p.Status = state{"identical so far", "open"}
		p.Sentence = fmt.Sprintf("The replay produced the same %s; the recording ends there.", display.Plural(verdict.Events, "event"))
	default:
		p.Status = state{"identical", "good"}
		p.Sentence = fmt.Sprintf("The replay produced the same %s, byte for byte.", display.Plural(verdict.Events, "event"))
	}
}

func (s *Server) describeDivergence(id string, d *agent.Divergence, p *verdictPage) {
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
		p.Same, p.Expected, p.Got = apart(display.PrintableText(d.Expected), display.PrintableText(d.Got))
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
