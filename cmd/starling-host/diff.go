package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/starling-host/starling/runtime/replay"
)

// writeDivergence explains where a replay left its recording:
//
//	diverged at event 4 of 7 (SideEffectRecorded), run 01J...
//	  class     payload
//	  field     request
//	  expected  GET http://127.0.0.1/customers/41
//	  got       GET http://127.0.0.1/customers/42
//	                                          ^
func writeDivergence(w io.Writer, d *replay.Divergence, events int) {
	fmt.Fprintf(w, "diverged at event %d of %d (%s), run %s\n", d.Seq, events, replay.KindName(d.ExpectedKind), printable(d.RunID))
	fmt.Fprintf(w, "  class     %s\n", d.Class)
	if d.Kind != d.ExpectedKind {
		fmt.Fprintf(w, "  kind      expected %s, got %s\n", replay.KindName(d.ExpectedKind), replay.KindName(d.Kind))
	}
	if d.Field != "" {
		fmt.Fprintf(w, "  field     %s\n", ascii(d.Field))
	}
	if d.Reason != "" {
		fmt.Fprintf(w, "  reason    %s\n", printable(d.Reason))
	}
	if d.Expected == "" && d.Got == "" {
		return
	}
	expected, got, caret := aroundDifference(d.Expected, d.Got)
	fmt.Fprintf(w, "  expected  %s\n  got       %s\n", expected, got)
	if caret >= 0 {
		fmt.Fprintf(w, "            %s^\n", strings.Repeat(" ", caret))
	}
}
