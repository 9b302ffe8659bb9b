package worker

import (
	"bytes"
	"fmt"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/workspace"
)

// files are the host's side of the files of a call. The process learns what hangs below the root,
// and nothing else that has a digest.
type files struct {
	listed map[canon.Hash]bool // what the answered folders list, and whether as a folder
	asked  uint64
}

// content answers a process that asks for a content. It is no effect; fuel bounds how often it can ask.
func (h *call) content(body []byte) error {
	f, digest := &h.files, canon.Hash{}
	f.asked++
	copy(digest[:], body)
	folder, listed := f.listed[digest] // nothing without files
	if !listed || len(body) != len(digest) || h.ended != nil || f.asked > h.module.prepared.Limits.Fuel/sandbox.FuelOfContent {
		return errProtocol
	}
	h.process.watch.pause(0)
	content, err := h.Files.Get.Read(digest)
	h.process.watch.resume()
	var entries []workspace.Entry
	if err == nil && folder {
		entries, err = workspace.Decode(content)
	}
	if err != nil {
		h.ended = hostFailed(fmt.Errorf("worker: a file of the call cannot be read: %w", err))
		return h.process.say(kindEnd, func(b []byte) []byte { return b })
	}
	for _, e := range entries {
		f.listed[e.Digest] = f.listed[e.Digest] || e.Kind == workspace.Folder // a file can have the bytes of a folder
	}
	return h.process.say(kindAnswer, func(b []byte) []byte { return append(b, content...) })
}

// appendFiles writes what a process needs to know of the files of a call.
func appendFiles(b []byte, f *sandbox.Files) []byte {
	if b = appendFlag(b, f != nil); f == nil {
		return b
	}
	b = appendUint(append(b, f.Root[:]...), uint64(len(f.Mounts)))
	for _, m := range f.Mounts {
		b = appendBytes(b, m.At)
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
		files.Mounts = append(files.Mounts, sandbox.Mount{At: f.text()})
	}
	return files
}

// content asks the host for a content.
func (a *asking) content(digest canon.Hash) ([]byte, error) {
	return bytes.Clone(a.exchange(append(begin(a.worker.frame, kindContent), digest[:]...))), nil
}
