package view

import (
	"fmt"
	"strings"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/runtime/agent"
)

// Progress prints what an agent does while it does it. The texts of the model and of tools are hostile.
type Progress struct {
	Out, Err *terminal.Printer // for the answer, and for lines about calls
	Stream   bool              // the answer is printed as it comes

	open bool // the cursor is behind text that has no line break yet
}

// mostShown bounds what a line shows of arguments and results, in bytes.
const mostShown = 200

// Print prints an event of the agent.
func (p *Progress) Print(ev agent.AgentEvent) {
	switch ev := ev.(type) {
	case agent.TextDelta:
		p.text(ev.Text)
	case agent.Restarted:
		p.Line()
		p.Err.Printf("retrying the request to the model\n")
	case agent.ToolCallStarted:
		p.Line()
		again := ""
		if ev.Attempt > 1 {
			again = fmt.Sprintf(" (attempt %d)", ev.Attempt)
		}
		p.Note("-> " + ev.Tool + " " + shown(string(ev.Args)) + again)
	case agent.ToolCallEnded:
		p.Line()
		if ev.Err != nil {
			p.Note("<- " + ev.Tool + " failed: " + shown(ev.Err.Error()))
		} else {
			p.Note("<- " + ev.Tool + " " + shown(string(ev.Result)))
		}
	}
}

// text prints a piece of the model's answer.
func (p *Progress) text(text string) {
	if !p.Stream || text == "" {
		return
	}
	fmt.Fprint(p.Out.Lines(), strings.NewReplacer("\r\n", "\n", "\t", "    ").Replace(text))
	p.open = !strings.HasSuffix(text, "\n")
}

// Note prints a line about a call, or about the run.
func (p *Progress) Note(text string) {
	for i, line := range p.Err.Wrap(text, 3) {
		p.Err.Printf("%*s%s\n", 3*min(i, 1), "", line)
	}
}

// Line ends a line of text that is open.
func (p *Progress) Line() {
	if p.open {
		p.Out.Printf("\n")
	}
	p.open = false
}

// shown is a text on one line, shortened.
func shown(text string) string {
	if len(text) <= mostShown {
		return text
	}
	return strings.ToValidUTF8(text[:mostShown], "") + fmt.Sprintf("... (%s)", display.Plural(len(text), "byte"))
}
