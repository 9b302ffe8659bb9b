package canon

import "slices"

// writer receives a document in the order in which it is read. There are two:
// one for each encoding.
type writer interface {
	null()
	boolean(v bool)
	integer(v integer)
	float(f float64)
	text(s []byte)

	open(isMap bool)
	key(key []byte, at int) // before each value of an object
	done()                  // after each element or value
	close() (duplicate int) // position of a key that came before, or -1
}

// layout is what both writers know about the containers that are not closed
// yet, the innermost last, and about the members of those that are objects.
type layout struct {
	containers []container
	members    []member
	scratch    []byte
}

type container struct {
	isMap    bool
	unsorted bool // a key came that is not greater than the one before
	start    int  // of the container in the writer's buffer
	count    int  // of complete elements or members
	first    int  // index of its first member
}

type member struct {
	key        []byte
	at         int // position of the key in the source
	start, end int // of key, value and what follows it in the writer's buffer
}

func (l *layout) begin(isMap bool, start int) {
	l.containers = append(l.containers, container{isMap: isMap, start: start, first: len(l.members)})
}

// beginMember notes a key that will be written at start.
func (l *layout) beginMember(m member, order func(a, b []byte) int) {
	c := &l.containers[len(l.containers)-1]
	if c.count > 0 && order(l.members[len(l.members)-1].key, m.key) >= 0 {
		c.unsorted = true
	}
	l.members = append(l.members, m)
}

// endElement notes that an element or member ends at end.
func (l *layout) endElement(end int) {
	c := &l.containers[len(l.containers)-1]
	c.count++
	if c.isMap {
		l.members[len(l.members)-1].end = end
	}
}

// end removes the innermost container, whose members are the rest of buf, and
// brings these into order. Documents are mostly written in order, and then
// there is nothing to do. Duplicate is the position in the source of the first
// key that came before, or -1.
func (l *layout) end(buf []byte, order func(a, b []byte) int) (c container, duplicate int) {
	c = l.containers[len(l.containers)-1]
	l.containers = l.containers[:len(l.containers)-1]
	list := l.members[c.first:]
	l.members = l.members[:c.first]
	if !c.unsorted {
		return c, -1
	}
	base := list[0].start
	slices.SortStableFunc(list, func(a, b member) int { return order(a.key, b.key) })
	if at := firstDuplicate(list, order); at >= 0 {
		return c, at
	}
	l.scratch = l.scratch[:0]
	for _, m := range list {
		l.scratch = append(l.scratch, buf[m.start:m.end]...)
	}
	copy(buf[base:], l.scratch)
	return c, -1
}

func firstDuplicate(sorted []member, order func(a, b []byte) int) int {
	first := -1
	for i := 1; i < len(sorted); i++ {
		m := sorted[i]
		if order(sorted[i-1].key, m.key) == 0 && (first < 0 || m.at < first) {
			first = m.at
		}
	}
	return first
}
