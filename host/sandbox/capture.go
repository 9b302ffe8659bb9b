package sandbox

import (
	"slices"
	"strings"
	"unicode/utf8"
)

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
