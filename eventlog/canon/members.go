package canon

import "slices"

// member is one written member of an object that is not closed yet.
type member struct {
	key        []byte
	at         int // position of the key in the source, for errors
	start, end int // of key, value and separator in the writer's buffer
}

// members holds the members of all open objects, the innermost last.
type members struct {
	list    []member
	scratch []byte
}

// add begins a member at position start of the writer's buffer.
func (m *members) add(c *container, mb member, order func(a, b []byte) int) {
	if c.count > 0 && order(m.list[len(m.list)-1].key, mb.key) >= 0 {
		c.unsorted = true
	}
	c.count++
	m.list = append(m.list, mb)
}

// sort brings the members of c, which are the rest of buf, into order. It
// returns the position of a key that appears for the second time, or -1.
// Documents are mostly written in order, and then there is nothing to do.
func (m *members) sort(c *container, buf []byte, order func(a, b []byte) int) (duplicate int) {
	list := m.list[c.first:]
	m.list = m.list[:c.first]
	if !c.unsorted {
		return -1
	}
	slices.SortStableFunc(list, func(a, b member) int { return order(a.key, b.key) })
	m.scratch = m.scratch[:0]
	base := len(buf)
	for i, mb := range list {
		if i > 0 && order(list[i-1].key, mb.key) == 0 {
			return mb.at
		}
		base = min(base, mb.start)
		m.scratch = append(m.scratch, buf[mb.start:mb.end]...)
	}
	copy(buf[base:], m.scratch)
	return -1
}
