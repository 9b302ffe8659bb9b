package main

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/debug"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/agentfile"
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

// endedAt returns the functions in which a call of a recorded run ended, "at FUNCTION (FILE:LINE)",
// innermost first and with its instruction. The call is the one that at names, as in [debug.Find]; if it
// left its recording there, the functions are those at its end now, unless it returned. A module in
// other, unless it is nil, replaces those of the run.
// said is what the user has been told: if it has the line already, there is nothing to add. Nor is there
// if it takes too long to find out.
func endedAt(ctx context.Context, events []event.Event, at string, left bool, modules eventlog.ModuleReader, other []byte, said string) (lines []string) {
	ctx, stop := context.WithTimeout(ctx, endedTimeout)
	defer stop()
	target, err := debug.Find(events, at)
	if err != nil || target.Call.Fuel > endedFuel {
		return nil
	}
	s, err := debug.Open(ctx, events, target, debug.Options{Modules: modules, Other: other, Native: agentfile.Offline})
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
	users := func(f debug.Frame) bool { return f.File != "" && !library.MatchString(f.File) }
	own := slices.ContainsFunc(frames, users)
	met := false // a function of the user
	for i, f := range frames {
		met = met || users(f)
		if f.Script != frames[0].Script || f.Function == "" && f.Line == 0 || own && library.MatchString(f.File) || own && !met && i > 0 {
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
var library = regexp.MustCompile(`^/rustc/|/rustc-[0-9.]+/|/rustlib/|/include/c\+\+/`)

// instruction returns the instruction at which a function is, and its offset in the module.
func instruction(s *debug.Session, f debug.Frame) string {
	for _, c := range s.Disassemble(f) {
		if c.Offset == f.Offset {
			return fmt.Sprintf(": %s at %#x", c.Text, c.Offset)
		}
	}
	return ""
}
