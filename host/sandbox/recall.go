package sandbox

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"os"
	"path/filepath"

	"github.com/starling-host/starling/eventlog/chain"
)

// What was prepared is kept beside the code, so that a module is checked and rewritten
// once by each version of this program. An entry is BLAKE3-256 of the rest, and a
// [Prepared] with its shell. Whatever is wrong with one means that there is none.

// key is under what this program keeps what it made of a module: all that decides about
// it. It is empty if nothing is kept.
func (e *Engine) key(digest chain.Hash, l Limits) string {
	if e.cache.program == "" || e.profile != nil {
		return ""
	}
	b := append(digest[:], e.cache.program...)
	b = binary.LittleEndian.AppendUint32(b, l.MemoryPages)
	b = binary.LittleEndian.AppendUint32(b, l.Depth)
	return filepath.Join(e.cache.root, preparedFolder, chain.Sum(b).String())
}

const preparedFolder = "prepared"

// recall returns what was kept under the key for a module of that digest, if its code is
// there as well, or nil.
func (c *cache) recall(key string, digest chain.Hash, l Limits) *Prepared {
	if key == "" || !c.use(key) {
		return nil
	}
	entry, err := os.ReadFile(key)
	if err != nil || len(entry) < len(chain.Hash{}) {
		return nil
	}
	sum, entry := chain.Hash(entry[:len(chain.Hash{})]), entry[len(chain.Hash{}):]
	if chain.Sum(entry) != sum {
		return nil
	}
	var p Prepared
	if err := gob.NewDecoder(bytes.NewReader(entry)).Decode(&p); err != nil || p.Digest != digest {
		return nil
	}
	p.Limits = l
	p.Folder = filepath.Join(c.root, p.Folder)
	if !c.use(p.Folder) {
		return nil
	}
	return &p
}

// remember keeps what was prepared. A process that dies in here leaves what trim removes.
func (c *cache) remember(key string, p *Prepared) {
	if key == "" {
		return
	}
	kept := *p
	var err error
	if kept.Folder, err = filepath.Rel(c.root, p.Folder); err != nil {
		return
	}
	var entry bytes.Buffer
	if err := gob.NewEncoder(&entry).Encode(kept); err != nil {
		return
	}
	sum := chain.Sum(entry.Bytes())
	c.write(key, append(sum[:], entry.Bytes()...))
}

// write puts an entry where it belongs, whole.
func (c *cache) write(key string, entry []byte) {
	if err := os.MkdirAll(filepath.Dir(key), 0o700); err != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(key), preparing)
	if err != nil {
		return
	}
	_, err = f.Write(entry)
	if f.Close() != nil || err != nil || os.Rename(f.Name(), key) != nil {
		_ = os.Remove(f.Name())
		return
	}
	c.filled(key)
}
