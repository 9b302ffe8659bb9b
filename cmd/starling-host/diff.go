package main

import (
	"strings"

	"github.com/starling-host/starling/runtime/agent"
)

// writeDivergence explains where a replay left its recording:
//
//	diverged at event 4 of 7 (SideEffectRecorded), run 01J...
//	  class     payload
//	  field     request
//	  expected  GET http://127.0.0.1/customers/41
//	  got       GET http://127.0.0.1/customers/42
//	                                          ^
func writeDivergence(w *printer, d *agent.Divergence, events int) {
	w.printf("%s at event %d of %d (%s), run %s\n", styled{bad, "diverged"}, d.Seq, events, agent.KindName(d.ExpectedKind), d.RunID)
	w.printf("  class     %s\n", d.Class)
	if d.Kind != d.ExpectedKind {
		w.printf("  kind      expected %s, got %s\n", agent.KindName(d.ExpectedKind), agent.KindName(d.Kind))
	}
	if d.Field != "" {
		w.printf("  field     %s\n", ascii(d.Field))
	}
	if d.Reason != "" {
		w.printf("  reason    %s\n", d.Reason)
	}
	if d.Expected == "" && d.Got == "" {
		return
	}
	expected, got, caret := aroundDifference(d.Expected, d.Got)
	w.printf("  expected  %s\n  got       %s\n", expected, got)
	if caret >= 0 {
		w.printf("            %s^\n", strings.Repeat(" ", caret))
	}
}
