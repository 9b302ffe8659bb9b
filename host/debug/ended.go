package debug

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
)

const (
	endedTimeout = 30 * time.Second // of a look at how a call ended, which executes it again
	endedFuel    = 300_000_000      // of a call that is executed again in a second or two
	endedFrames  = 8
)

// endsInside reports whether a call that failed like that has been stopped within its code.
func endsInside(errorType string) bool {
	switch errorType {
	case event.ErrorPanic, event.ErrorFuel, event.ErrorLimit, event.ErrorTimeout:
		return true
	}
	return false
}

// Ended returns the functions in which a run left its recording at the event left or, if that is 0, in which
// the call whose failure ended it was stopped or, if it went on, the last call that was. Each is a line
// "at FUNCTION (FILE:LINE)", innermost first and with its instruction. There is nothing to add if the error
// has the line already, nor if it takes too long to find out. A module in o.Other replaces those of the run.
func Ended(ctx context.Context, log eventlog.EventLog, runID string, left uint64, o Options) []string {
	events, err := log.Read(ctx, runID)
	if err != nil {
		return nil
	}
	at, said := strconv.FormatUint(left, 10), ""
	if 0 < left && left <= uint64(len(events)) && events[left-1].Kind == event.KindToolCallScheduled { // by the call around it
		if p, err := events[left-1].AsToolCallScheduled(); err == nil && p.ParentID != "" {
			at = p.ParentID
		}
	} else if left == 0 {
		run, err := span.Of(events)
		if err != nil {
			return nil
		}
		for i, s := range run.Spans {
			said += s.Error
			if s.Kind == span.Call && endsInside(s.ErrorType) && (i == run.Cause || run.State != span.Failed) {
				at = strconv.FormatUint(s.Last, 10)
			}
		}
	}
	if at == "0" {
		return nil
	}
	return endedAt(ctx, events, at, left > 0, o, said)
}

// endedAt returns the functions at the end of a call, or where it is now if it left its recording. said is
// what the user has been told.
func endedAt(ctx context.Context, events []event.Event, at string, left bool, o Options, said string) (lines []string) {
	ctx, stop := context.WithTimeout(ctx, endedTimeout)
	defer stop()
	target, err := Find(events, at)
	if err != nil || target.Call.Fuel > endedFuel {
		return nil
	}
	s, err := Open(ctx, events, target, o)
	if err != nil {
		return nil
	}
	if left && s.Returned() {
		return nil
	} else if _, end, _ := s.Position(); left {
		if _, err := s.Goto(ctx, end); err != nil {
			return nil
		}
	}
	frames := s.Frames()
	again := 0 // recursion that the last line stands for
	users := func(f Frame) bool { return f.File != "" && !library().MatchString(f.File) }
	own := slices.ContainsFunc(frames, users)
	met := false // a function of the user
	for i, f := range frames {
		met = met || users(f)
		if f.Script != frames[0].Script || f.Function == "" && f.Line == 0 || own && library().MatchString(f.File) || own && !met && i > 0 {
			continue // the interpreter itself, or a library between the user's code and the place where it was stopped
		}
		text := "at " + display.Shorten(f.Function, 80)
		if f.Line > 0 {
			place := fmt.Sprintf("%s:%d", f.File, f.Line)
			if strings.Contains(said, path.Base(place)) {
				return nil
			}
			text += " (" + place + ")"
		}
		if text = display.Printable(text); len(lines) > 0 && frames[i-1].Place == f.Place {
			again++
			lines[len(lines)-1] = text + ", " + display.Plural(again+1, "call")
			continue
		}
		if again = 0; len(lines) == endedFrames {
			break
		}
		if len(lines) == 0 && !f.Script {
			text += instruction(s, f)
		}
		lines = append(lines, text)
	}
	return lines
}

// library matches the files that come with a compiler, such as the standard library of Rust. Those of a
// user may be absolute or relative.
var library = lazy.Regexp(`^/rustc/|/rustc-[0-9.]+/|/rustlib/|/include/c\+\+/`)

// instruction returns the instruction at which a function is, and its offset in the module.
func instruction(s *Session, f Frame) string {
	for _, c := range s.Disassemble(f) {
		if c.Offset == f.Offset {
			return fmt.Sprintf(": %s at %#x", c.Text, c.Offset)
		}
	}
	return ""
}
