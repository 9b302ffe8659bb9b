package sandbox

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"os"
	"path/filepath"

	"github.com/starling-host/starling/host/internal/cachefile"
	"github.com/starling-host/starling/host/internal/rewrite"
)

// What was prepared is kept beside the code, so that a module is checked and rewritten
// once by each version of this program. Whatever is wrong with an entry means that there
// is none.

// entry is what is kept of a module, in a cachefile.
type entry struct {
	Prepared          // with its shell, and without Data
	Offsets  []uint32 // those of Data
	Lengths  []uint32
	Bytes    []byte // of all Data, since gob takes long to read thousands of pieces
}

func newEntry(p *Prepared) *entry {
	e := &entry{Prepared: *p}
	for _, d := range p.Data {
		e.Offsets, e.Lengths = append(e.Offsets, d.Offset), append(e.Lengths, uint32(len(d.Bytes)))
		e.Bytes = append(e.Bytes, d.Bytes...)
	}
	e.Data = nil
	return e
}

func (e *entry) prepared() *Prepared {
	e.Data = make([]rewrite.Segment, len(e.Offsets))
	for i, n := range e.Lengths {
		e.Data[i] = rewrite.Segment{Offset: e.Offsets[i], Bytes: e.Bytes[:n:n]}
		e.Bytes = e.Bytes[n:]
	}
	return &e.Prepared
}

// key is under what this program keeps what it made of a module: all that decides about
// it. It is empty if nothing is kept.
func (e *Engine) key(digest Digest, l Limits) string {
	if e.cache.program == "" || e.profile != nil {
		return ""
	}
	b := append(digest[:], e.cache.program...)
	b = binary.LittleEndian.AppendUint32(b, l.MemoryPages)
	b = binary.LittleEndian.AppendUint32(b, l.Depth)
	return filepath.Join(e.cache.root, preparedFolder, Sum(b).String())
}

const preparedFolder = "prepared"

// recall returns what was kept under the key for a module of that digest, if its code is
// there as well, or nil.
func (c *cache) recall(key string, digest Digest, l Limits) *Prepared {
	if key == "" || !c.use(key) {
		return nil
	}
	kept, ok := cachefile.Read(key, c.most)
	if !ok {
		return nil
	}
	var e entry
	if err := gob.NewDecoder(bytes.NewReader(kept)).Decode(&e); err != nil || e.Digest != digest {
		return nil
	}
	p := e.prepared()
	p.Limits = l
	p.Folder = filepath.Join(c.root, p.Folder)
	if !c.use(p.Folder) {
		return nil
	}
	return p
}

// remember keeps what was prepared. A process that dies in here leaves what trim removes.
func (c *cache) remember(key string, p *Prepared) {
	if key == "" {
		return
	}
	e := newEntry(p)
	var err error
	if e.Folder, err = filepath.Rel(c.root, p.Folder); err != nil {
		return
	}
	var encoded bytes.Buffer
	if err := gob.NewEncoder(&encoded).Encode(e); err != nil {
		return
	}
	if err := os.MkdirAll(filepath.Dir(key), 0o700); err != nil {
		return
	}
	if cachefile.Write(key, preparing, encoded.Bytes()) == nil {
		c.filled(key)
	}
}
