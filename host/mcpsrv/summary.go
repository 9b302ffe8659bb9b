package mcpsrv

import (
	"context"
	"strings"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/logview"
	"github.com/starling-host/starling/host/narrate"
)

// Bounds of a summary.
const (
	maxSummarized = 100_000 // events
	maxNames      = 50      // names of tools, and of effects
	maxFailures   = 20
	maxName       = 120 // characters
)

type summaryArgs struct {
	RunID string `json:"run_id" jsonschema:"minLength=1"`
}

// summary is what summarize_run says.
type summary struct {
	Run     runInfo `json:"run"`
	Goal    string  `json:"goal,omitempty"`
	Model   string  `json:"model,omitempty"`
	Outcome string  `json:"outcome,omitempty"` // facts of the terminal event

	// FinalText is all of what the run came to or, without that, of the last answer of
	// the model.
	FinalText string `json:"final_text,omitempty"`

	Kinds    map[string]int `json:"kinds"`            // events by kind
	Tools    map[string]int `json:"tools"`            // calls by tool, without further attempts
	Effects  map[string]int `json:"effects"`          // crossings by name
	Failures []eventInfo    `json:"failures"`         // the first of them
	Capped   bool           `json:"capped,omitempty"` // the run has more than is said here
}

func summarizeRun(ctx context.Context, v logview.View, in summaryArgs) (summary, error) {
	run, err := v.Run(ctx, in.RunID)
	if err != nil {
		return summary{}, err
	}
	s := summary{Run: describe(ctx, v, run)[0], Kinds: map[string]int{}, Tools: map[string]int{}, Effects: map[string]int{}, Failures: []eventInfo{}}
	examined := 0
	for ev, err := range v.Events(ctx, in.RunID, 0) {
		if err != nil {
			return summary{}, err
		}
		if examined++; examined > maxSummarized {
			s.Capped = true
			break
		}
		s.add(ev)
	}
	return s, nil
}

func (s *summary) add(ev event.Event) {
	s.Kinds[ev.Kind.String()]++
	switch ev.Kind {
	case event.KindRunStarted:
		if p, err := ev.AsRunStarted(); err == nil {
			s.Goal = narrate.Shorten(narrate.Printable(p.Goal), maxGoal)
			s.Model = strings.Trim(narrate.Shorten(narrate.Printable(p.ProviderID+"/"+p.ModelID), maxName), "/")
		}
	case event.KindToolCallScheduled:
		if p, err := ev.AsToolCallScheduled(); err == nil && p.Attempt <= 1 {
			s.count(s.Tools, p.ToolName)
		}
	case event.KindSideEffectRecorded:
		if p, err := ev.AsSideEffectRecorded(); err == nil {
			s.count(s.Effects, p.Name)
		}
	case event.KindToolCallFailed, event.KindRunFailed, event.KindBudgetExceeded, event.KindTurnFailed:
		s.fail(ev)
	}
	if p, err := ev.AsAssistantMessageCompleted(); err == nil && p.Text != "" {
		s.FinalText = bounded(p.Text, maxEvent)
	}
	if p, err := ev.AsRunCompleted(); err == nil {
		s.FinalText = bounded(p.FinalText, maxEvent)
	}
	if ev.Kind.Terminal() {
		s.Outcome = newEventInfo(ev, 0).Facts
	}
}

func (s *summary) fail(ev event.Event) {
	if len(s.Failures) == maxFailures {
		s.Capped = true
		return
	}
	s.Failures = append(s.Failures, newEventInfo(ev, 0))
}

// count counts a name that a program chose.
func (s *summary) count(in map[string]int, name string) {
	name = narrate.Shorten(narrate.Printable(name), maxName)
	if _, known := in[name]; !known && len(in) == maxNames {
		s.Capped = true
		return
	}
	in[name]++
}
