package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/abi"
)

// traps are the ways in which WebAssembly itself ends a guest (core
// specification, section 4.4). Both engines say exactly this in the innermost
// of their errors; around it they add a stack trace, which differs between
// engines and never leaves this package.
var traps = []string{
	"unreachable",
	"integer overflow",
	"integer divide by zero",
	"invalid conversion to integer",
	"out of bounds memory access",
	"invalid table access",
	"indirect call type mismatch",
}

// engineOverflow is the engine's own limit on nested calls. The compiler's is out of
// reach of every Limits.Depth, the interpreter's of its default.
const engineOverflow = "stack overflow"

// exit is the panic of proc_exit.
type exit struct{ code uint32 }

func (e *exit) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// outcome turns the engine's error into the call's error. A *exit comes back
// unchanged: its meaning depends on the caller.
func (s *session) outcome(err error) error {
	var ended *guestStopped
	var exited *exit
	switch {
	case s.fault != nil:
		panic(s.fault)
	case errors.As(err, &ended):
		return ended.err
	case errors.As(err, &exited):
		return exited
	case errors.Is(err, ErrTooDeep):
		return hostFailed(err)
	}
	return s.trapped(innermost(err).Error())
}

func (s *session) trapped(reason string) error {
	switch {
	case s.overflowed():
		return s.failure(abi.ErrLimit, fmt.Sprintf("call stack deeper than %d slots", s.limits.Depth))
	case slices.Contains(traps, reason) && uint32(s.instance.refused.Get()) != 0:
		return s.failure(abi.ErrMemory, fmt.Sprintf("more than %g MiB of memory, then a trap: %s", float64(s.limits.MemoryPages)/16, reason))
	case slices.Contains(traps, reason):
		return s.failure(abi.ErrPanicked, "trap: "+reason)
	case reason == engineOverflow:
		return hostFailed(ErrTooDeep)
	}
	return hostFailed(fmt.Errorf("the engine failed: %s", reason))
}

// HostFailure is the error of a call that failed because of the host and not the guest. It
// matches abi.ErrHost.
type HostFailure struct{ cause error }

func hostFailed(cause error) error { return &HostFailure{cause} }

// Error returns the cause's text after the package's name.
func (e *HostFailure) Error() string { return "sandbox: " + e.cause.Error() }

// Unwrap returns abi.ErrHost and the cause.
func (e *HostFailure) Unwrap() []error { return []error{abi.ErrHost, e.cause} }

// overflowed reports whether the guest was ended by the frame budget, which
// the rewriter counts down.
func (s *session) overflowed() bool { return int32(s.instance.depth.Get()) < 0 }

// failure returns the error of a failed guest: the class, the reason, and the
// guest's output, where a language runtime explains more.
func (s *session) failure(class error, reason string) error {
	err := fmt.Errorf("%w: %s", class, reason)
	if text := s.printed(); text != "" {
		err = fmt.Errorf("%w\n%s", err, text)
	}
	return err
}

// printed returns the guest's output for an error text: its log and, from rules 1 on, the standard
// output of a command. Where both have something, a line names the second.
func (s *session) printed() string {
	log := s.log.excerpt()
	if s.rules == 0 || len(s.stdout) == 0 {
		return log
	}
	text := string(s.stdout)
	if cut := len(text) - stdoutTail; cut > stdoutHead {
		text = text[:stdoutHead] + "\n[...]\n" + text[cut:]
	}
	text = strings.TrimRight(strings.ToValidUTF8(text, string(utf8.RuneError)), "\r\n")
	if log != "" && text != "" {
		log += "\nstandard output:\n"
	}
	return log + text
}

func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// An error text contains a short log whole, and the beginning and the end of a long one:
// some runtimes print the reason first and then pages of stacks.
const (
	excerptHead = 512
	excerptTail = 1536

	// Standard output is the result of a command, such as the findings of a linter, so more of it is
	// kept. The rest of an error text that the log records is for the other stream.
	stdoutHead = 4 << 10
	stdoutTail = 8 << 10
)

// capture keeps the beginning of a guest's output, for the record, and its
// end, for an error text.
type capture struct {
	limit uint64
	total uint64 // bytes written
	head  []byte // the first of them, up to limit
	tail  []byte // the last excerptTail of them or more
}

func (c *capture) write(p []byte) {
	c.total += uint64(len(p))
	room := c.limit - uint64(len(c.head))
	c.head = append(c.head, p[:min(uint64(len(p)), room)]...)
	c.tail = append(c.tail, p[max(0, len(p)-excerptTail):]...)
	if len(c.tail) > 4*excerptTail { // now and then, not at each write
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-excerptTail:]...)
	}
}

// clone returns an independent copy.
func (c *capture) clone() capture {
	other := *c
	other.head, other.tail = slices.Clip(c.head), slices.Clone(c.tail)
	return other
}

// text returns the kept beginning, as valid UTF-8 within the limit.
func (c *capture) text() string {
	s := strings.ToValidUTF8(string(c.head), string(utf8.RuneError))
	if uint64(len(s)) <= c.limit {
		return s
	}
	cut := int(c.limit)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// excerpt returns the part for an error text, as valid UTF-8 without
// surrounding space.
func (c *capture) excerpt() string {
	tail := string(c.tail[max(0, len(c.tail)-excerptTail):])
	if c.total > excerptTail {
		start := string(c.head[:min(uint64(len(c.head)), excerptHead, c.total-excerptTail)])
		if uint64(len(start))+excerptTail < c.total {
			start += "\n[...]\n"
		}
		tail = start + tail
	}
	return strings.TrimSpace(strings.ToValidUTF8(tail, string(utf8.RuneError)))
}
