package sandbox

import (
	"strings"
	"unicode/utf8"
)

// tailBytes is how much of the end of a log an error text shows.
const tailBytes = 2 << 10

// capture keeps the beginning of what a guest wrote, for the log, and the end
// of it, for an error text: the reason for a crash comes last.
type capture struct {
	limit uint64
	head  []byte
	tail  []byte // up to twice tailBytes; the last tailBytes count
	more  bool   // tail is not the whole log
}

func (c *capture) write(p []byte) {
	room := c.limit - uint64(len(c.head))
	c.head = append(c.head, p[:min(uint64(len(p)), room)]...)
	if len(p) > tailBytes {
		p, c.more = p[len(p)-tailBytes:], true
	}
	if c.tail = append(c.tail, p...); len(c.tail) > 2*tailBytes {
		c.tail, c.more = append(c.tail[:0], c.tail[len(c.tail)-tailBytes:]...), true
	}
}

// text returns what is kept, as valid UTF-8 and not longer than the limit.
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

// last returns the log's last lines, as valid UTF-8 without space around them.
func (c *capture) last() string {
	tail, cut := c.tail, c.more
	if len(tail) > tailBytes {
		tail, cut = tail[len(tail)-tailBytes:], true
	}
	s := strings.ToValidUTF8(string(tail), string(utf8.RuneError))
	if _, rest, ok := strings.Cut(s, "\n"); ok && cut {
		s = rest
	}
	return strings.TrimSpace(s)
}
