package canon

import (
	"bytes"
	"cmp"
)

// cborWriter writes canonical CBOR.
type cborWriter struct {
	layout
	buf []byte
}

func (w *cborWriter) null() { w.buf = AppendNull(w.buf) }

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
func (w *cborWriter) open(isMap bool) {
	w.begin(isMap, len(w.buf))
	w.buf = append(w.buf, 0)
}

func (w *cborWriter) key(key []byte, at int) {
	w.beginMember(member{key: key, at: at, start: len(w.buf)}, compareText)
	w.text(key)
}

func (w *cborWriter) done() { w.endElement(len(w.buf)) }

func (w *cborWriter) close() (duplicate int) {
	c, duplicate := w.end(w.buf, compareText)
	major := byte(majorArray)
	if c.isMap {
		major = majorMap
	}
	body, end := c.start+1, len(w.buf)
	if grow := headSize(uint64(c.count)) - 1; grow > 0 {
		w.buf = append(w.buf, make([]byte, grow)...)
		copy(w.buf[body+grow:], w.buf[body:end])
	}
	appendHead(w.buf[:c.start], major, uint64(c.count)) // into the room made for it
	return duplicate
}

// compareText orders texts as their encodings are ordered: the shorter first,
// because its head is smaller.
func compareText(a, b []byte) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), bytes.Compare(a, b))
}
