package sandbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-host/starling/host/internal/cachefile"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/work"
)

// Prepared modules are kept beside the code, so that each version of this program checks
// and rewrites a module once, and runs a heavy start-up once. A faulty entry counts as missing.

// encoded is the form of a Prepared for other processes of the same program.
type encoded struct {
	Prepared          // without Data, Wasm and Module
	Offsets  []uint32 // of Data, whose bytes follow and then Wasm and Module, since gob takes long to read them
	Lengths  []uint32 // of all of these
}

// Encode returns the pieces of what [DecodePrepared] reads in a process of the same program. They
// share memory with p.
func (p *Prepared) Encode() ([][]byte, error) {
	e := encoded{Prepared: *p}
	e.Data, e.Wasm, e.Module = nil, nil, nil
	n := len(p.Data)
	pieces := make([][]byte, 1, n+3)
	e.Offsets, e.Lengths = make([]uint32, n), make([]uint32, 0, n+2)
	for i, d := range p.Data {
		e.Offsets[i], pieces = d.Offset, append(pieces, d.Bytes)
	}
	pieces = append(pieces, p.Wasm, p.Module)
	for _, piece := range pieces[1:] {
		e.Lengths = append(e.Lengths, uint32(len(piece)))
	}
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(&e)
	pieces[0] = b.Bytes()
	return pieces, err
}

// DecodePrepared returns what [Prepared.Encode] has encoded. It shares memory with b.
func DecodePrepared(b []byte) (*Prepared, error) {
	var e encoded
	r := bytes.NewReader(b)
	if err := gob.NewDecoder(r).Decode(&e); err != nil {
		return nil, fmt.Errorf("sandbox: a prepared module: %w", err)
	}
	budget := work.For(context.Background(), len(b))
	if err := budget.Spend(len(e.Offsets)); err != nil || len(e.Offsets)+2 != len(e.Lengths) {
		return nil, errors.Join(errors.New("sandbox: the data of a prepared module is not what it lists"), err)
	}
	b = b[len(b)-r.Len():]
	e.Data = make([]rewrite.Segment, len(e.Offsets))
	for i, n := range e.Lengths {
		if uint64(n) > uint64(len(b)) {
			return nil, errors.New("sandbox: the data of a prepared module is cut")
		}
		switch piece := b[:n:n]; {
		case i < len(e.Data):
			e.Data[i] = rewrite.Segment{Offset: e.Offsets[i], Bytes: piece}
		case i == len(e.Data) && n > 0:
			e.Wasm = piece
		case n > 0:
			e.Module = piece
		}
		b = b[n:]
	}
	return &e.Prepared, nil
}

// key returns the key of a prepared module: everything that determines the result. It
// is empty if nothing is kept.
func (e *Engine) key(digest Digest, l Limits) string {
	if e.cache.program == "" || e.observers.Profile != nil {
		return ""
	}
	b := append(digest[:], e.cache.program...)
	b = binary.LittleEndian.AppendUint32(b, l.MemoryPages)
	b = binary.LittleEndian.AppendUint32(b, l.Depth)
	b = binary.LittleEndian.AppendUint64(b, l.LogBytes) // a start has the log of the start-up
	return filepath.Join(e.cache.root, preparedFolder, Sum(b).String())
}

const preparedFolder = "prepared"

// recall returns the entry under the key for a module of that digest, if its code exists
// as well, or nil.
func (c *cache) recall(key string, digest Digest, l Limits) *Prepared {
	if key == "" || !c.use(key) {
		return nil
	}
	kept, ok := cachefile.Read(key, c.most)
	if !ok {
		return nil
	}
	p, err := DecodePrepared(kept)
	if err != nil || p.Digest != digest {
		return nil
	}
	p.Limits = l
	p.Folder = filepath.Join(c.root, p.Folder)
	if !c.use(p.Folder) {
		return nil
	}
	return p
}

// remember keeps a prepared module. If the process dies here, trim removes the rest.
func (c *cache) remember(key string, p *Prepared) {
	if key == "" {
		return
	}
	moved := *p
	var entry [][]byte
	var err error
	if moved.Folder, err = filepath.Rel(c.root, p.Folder); err == nil {
		entry, err = moved.Encode()
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(key), 0o700)
	}
	if err == nil && cachefile.Write(key, preparing, entry...) == nil {
		c.filled(key)
	}
}
