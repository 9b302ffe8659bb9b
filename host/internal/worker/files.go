package worker

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/workspace"
)

// maxContent is the length of the longest content, with its flag: no folder is as long as a file can be.
const maxContent = workspace.MaxFileBytes + 1

// files are the host's side of the files of a call. The process can read what hangs below the root,
// and nothing else that has a digest. What it leaves is hostile input, and checked as such.
type files struct {
	known    map[kindOf]uint64     // sizes, by what the answered folders list
	folders  map[canon.Hash][]byte // that were answered or that the call leaves
	left     map[canon.Hash][]byte // files and links that the call leaves
	sent     map[kindOf]bool       // as a folder, or as a file
	contents []workspace.Content
	bytes    int
	asked    uint64
}

// kindOf is a content and what it is used as.
type kindOf struct {
	digest canon.Hash
	kind   workspace.Kind
}

func newFiles(root sandbox.Digest) files {
	return files{
		known:   map[kindOf]uint64{{canon.Hash(root), workspace.Folder}: 0},
		folders: map[canon.Hash][]byte{}, left: map[canon.Hash][]byte{}, sent: map[kindOf]bool{},
	}
}

// content answers a process that asks for a content. It is not an effect; fuel bounds how often it can ask.
func (h *call) content(body []byte) error {
	f := &h.files
	f.asked++
	if h.Files == nil || h.ended != nil || len(body) != len(canon.Hash{}) || f.asked > h.module.prepared.Limits.Fuel/sandbox.FuelOfContent {
		return errProtocol
	}
	digest := canon.Hash(body)
	_, folder := f.known[kindOf{digest, workspace.Folder}]
	_, file := f.known[kindOf{digest, workspace.File}]
	if _, link := f.known[kindOf{digest, workspace.Link}]; !folder && !file && !link {
		return errProtocol
	}
	h.process.watch.pause(0)
	content, err := h.Files.Get.Read(digest)
	h.process.watch.resume()
	if err == nil && folder && f.folders[digest] == nil {
		var entries []workspace.Entry
		entries, err = workspace.Decode(content)
		for _, e := range entries {
			f.known[kindOf{e.Digest, e.Kind}] = e.Size
		}
		f.folders[digest] = content
	}
	if err != nil {
		h.ended = hostFailed(fmt.Errorf("worker: a file of the call cannot be read: %w", err))
		return h.process.say(kindEnd, func(b []byte) []byte { return b })
	}
	return h.process.say(kindAnswer, func(b []byte) []byte { return append(b, content...) })
}

// leaves takes a content that the call leaves.
func (h *call) leaves(body []byte) error {
	fields, f := fields{b: body}, &h.files
	c := workspace.Content{Folder: fields.flag(), Bytes: bytes.Clone(fields.b)}
	k, place := kindOf{c.Digest(), workspace.File}, f.left
	if c.Folder {
		k.kind, place = workspace.Folder, f.folders
	}
	f.bytes += len(c.Bytes)
	if fields.bad || h.Files == nil || f.sent[k] || len(f.contents) > workspace.MaxEntries || f.bytes > workspace.MaxBytes+maxContent {
		return errProtocol
	}
	if c.Folder {
		entries, err := workspace.Decode(c.Bytes)
		if err != nil {
			return errProtocol
		}
		for _, e := range entries {
			size, known := f.known[kindOf{e.Digest, e.Kind}]
			if content := f.left[e.Digest]; e.Kind != workspace.Folder && content != nil {
				size, known = uint64(len(content)), e.Kind == workspace.File || utf8.Valid(content) && bytes.IndexByte(content, 0) < 0
			}
			if known = known && size == e.Size; e.Kind == workspace.Folder {
				known = f.folders[e.Digest] != nil
			}
			if !known {
				return errProtocol
			}
		}
	}
	f.sent[k], place[k.digest] = true, c.Bytes
	f.contents = append(f.contents, c)
	return nil
}

// tree checks that the process leaves a tree in which everything new is used, and nothing differs but
// below mounts that can be written to.
func (h *call) tree(root []byte) (left sandbox.Digest, err error) {
	f := &h.files
	switch {
	case copy(left[:], root) != len(root) || (len(root) == len(left)) != (h.Files != nil):
		return left, errProtocol
	case h.Files == nil || left == h.Files.Root && len(f.contents) == 0:
		return left, nil
	}
	get := func(digest canon.Hash) ([]byte, error) {
		if content, ok := f.folders[digest]; ok {
			return content, nil
		}
		return nil, errProtocol
	}
	used := map[canon.Hash]bool{canon.Hash(left): true}
	if workspace.Walk(get, canon.Hash(left), func(_ string, e workspace.Entry) error { used[e.Digest] = true; return nil }) != nil {
		return left, errProtocol
	}
	for content := range f.sent {
		if !used[content.digest] {
			return left, errProtocol
		}
	}
	changes, err := workspace.Diff(get, canon.Hash(h.Files.Root), canon.Hash(left))
	if err != nil {
		return left, errProtocol
	}
	for _, c := range changes {
		writable := false
		for _, m := range h.Files.Mounts {
			writable = writable || m.Writable && strings.HasPrefix("/"+c.Path, m.At+"/")
		}
		if !writable {
			return left, errProtocol
		}
	}
	return left, nil
}

// appendFiles writes what a process needs to know of the files of a call.
func appendFiles(b []byte, f *sandbox.Files) []byte {
	if b = appendFlag(b, f != nil); f == nil {
		return b
	}
	b = appendUint(append(b, f.Root[:]...), uint64(len(f.Mounts)))
	for _, m := range f.Mounts {
		b = appendFlag(appendBytes(b, m.At), m.Writable)
	}
	return b
}

func (f *fields) files() *sandbox.Files {
	if !f.flag() {
		return nil
	}
	files := &sandbox.Files{}
	copy(files.Root[:], f.take(uint64(len(files.Root))))
	for n := f.uint(); n > 0 && !f.bad; n-- {
		files.Mounts = append(files.Mounts, sandbox.Mount{At: f.text(), Writable: f.flag()})
	}
	return files
}

// content asks the host for a content.
func (a *asking) content(digest canon.Hash) ([]byte, error) {
	return bytes.Clone(a.exchange(append(begin(a.worker.frame, kindContent), digest[:]...))), nil
}

// leave sends the contents that a call leaves.
func (w *worker) leave(contents []workspace.Content) error {
	for _, c := range contents {
		if err := w.send(append(appendFlag(begin(w.frame, kindLeft), c.Folder), c.Bytes...)); err != nil {
			return err
		}
	}
	return nil
}
