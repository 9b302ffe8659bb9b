package canon

import (
	"bytes"
	"cmp"
)

// cborWriter writes canonical CBOR.
type cborWriter struct {
	buf []byte
	members
}

func (w *cborWriter) null() { w.buf = append(w.buf, cborNull) }

func (w *cborWriter) boolean(v bool) {
	if v {
		w.buf = append(w.buf, cborTrue)
	} else {
		w.buf = append(w.buf, cborFalse)
	}
}

func (w *cborWriter) integer(v integer) { w.buf = v.appendCBOR(w.buf) }

func (w *cborWriter) float(f float64) { w.buf = appendFloat(w.buf, f) }

func (w *cborWriter) text(s []byte) {
	w.buf = append(appendHead(w.buf, majorText, uint64(len(s))), s...)
}

// open leaves one byte for the head, which is enough for up to 23 elements.
func (w *cborWriter) open(isMap bool) container {
	c := container{isMap: isMap, start: len(w.buf), first: len(w.list)}
	w.buf = append(w.buf, 0)
	return c
}

func (w *cborWriter) element(c *container) { c.count++ }

func (w *cborWriter) key(c *container, key []byte, at int) {
	w.add(c, member{key: key, at: at, start: len(w.buf)}, compareText)
	w.text(key)
}

func (w *cborWriter) done(c *container) {
	if c.isMap {
		w.list[len(w.list)-1].end = len(w.buf)
	}
}

func (w *cborWriter) close(c *container) (duplicate int) {
	duplicate = -1
	major := byte(majorArray)
	if c.isMap {
		major = majorMap
		duplicate = w.sort(c, w.buf, compareText)
	}
	body := c.start + 1
	if grow := headSize(uint64(c.count)) - 1; grow > 0 {
		n := len(w.buf)
		w.buf = append(w.buf, make([]byte, grow)...)
		copy(w.buf[body+grow:], w.buf[body:n])
	}
	appendHead(w.buf[:c.start], major, uint64(c.count)) // into the room made for it
	return duplicate
}

// compareText orders texts as their encodings are ordered: the shorter first,
// because its head is smaller.
func compareText(a, b []byte) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), bytes.Compare(a, b))
}
