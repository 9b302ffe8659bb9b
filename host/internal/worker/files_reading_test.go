package worker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/workspace"
	"github.com/starling-host/starling/runtime/tool"
)

// readable are two mounts, which no call can change.
func (c contents) readable() *sandbox.Files {
	files := c.files()
	for i := range files.Mounts {
		files.Mounts[i].Writable = false
	}
	return files
}

// reads is a program that reads files, tries to change one, and lists a folder.
func reads() (p *wasmtest.Script, big uint64) {
	var imports []wasmtest.Import
	for _, name := range []string{"fd_read", "fd_write", "fd_readdir", "path_open", "path_rename"} {
		t, _ := rewrite.ImportType(abi.WASIModule, name)
		imports = append(imports, wasmtest.Import{Module: abi.WASIModule, Name: name, Type: t})
	}
	p = wasmtest.NewScript(imports, 20)
	text, count, fd := p.Room(make([]byte, 64)), p.Room(make([]byte, 8)), p.Room(make([]byte, 8))
	big = p.Room(make([]byte, 3<<20))
	area := func(at uint64, n int) uint64 { return p.Room(binary.LittleEndian.AppendUint64(nil, at|uint64(n)<<32)) }
	p.Call("path_open", 3, 1, "a", 0, 2, 0, 0, fd)
	p.Call("fd_read", 5, area(text, 64), 1, count)
	p.Call("path_open", 4, 1, "d/big", 0, 2, 0, 0, fd)
	p.Call("fd_read", 6, area(big, 3<<20), 1, count)
	p.Call("fd_readdir", 4, text, 64, 0, count)
	p.Call("path_rename", 4, "b", 4, "d/f")
	return p, big
}

func TestFilesThatAreReadAreTheSameInAProcess(t *testing.T) {
	store := contents{}
	script, big := reads()
	limits := sandbox.Limits{OutputBytes: wasmtest.ScriptRoom}
	here, there := mustLoad(t, inline(t), script.Module(), limits), mustLoad(t, workers(t, Config{}), script.Module(), limits)
	c := sandbox.Call{Tool: "script", Input: script.Input(), Files: store.readable()}
	want, err := here.Call(t.Context(), c, quiet{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one in the same process
		got, err := there.Call(t.Context(), c, quiet{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" || wasmtest.Ran(got.Output).At(big, 3<<20) != strings.Repeat("big", 1<<20) {
			t.Fatal(diff)
		}
	}
	for i, e := range []uint64{0, 0, 0, 0, 0, 69} {
		if got := wasmtest.Ran(want.Output).Result(i); got != e {
			t.Errorf("call %d: errno %d, want %d", i, got, e)
		}
	}
	hello := canon.Sum([]byte("hello"))
	long := *c.Files
	long.Root = sandbox.Digest(store.folder("", store.folder("data", workspace.Entry{Name: "a", Kind: workspace.File, Size: 6, Digest: hello}), store.folder("work")).Digest)
	for _, wrong := range []struct {
		files *sandbox.Files
		spoil func()
		want  string
	}{
		{&long, func() {}, "has 5 bytes, not 6"},
		{c.Files, func() { store[hello] = []byte("hullo") }, "another digest"},
		{c.Files, func() { delete(store, hello) }, "no content"},
		{c.Files, func() { store[canon.Hash(c.Files.Root)] = nil }, "another digest"},
		{&sandbox.Files{Root: sandbox.Digest(store.put([]byte("text"))), Mounts: c.Files.Mounts, Get: store.get}, func() {}, "folder"},
	} {
		wrong.spoil()
		c.Files = wrong.files
		for _, module := range []sandbox.Loaded{here, there} {
			if r, err := module.Call(t.Context(), c, quiet{}); !errors.Is(err, tool.ErrHost) || !strings.Contains(err.Error(), wrong.want) || len(r.Output) > 0 {
				t.Errorf("%q, %v; want %q", r.Output, err, wrong.want)
			}
		}
	}
	c.Files = nil
	if e := wasmtest.Ran(mustOutput(t, there, c)).Result(0); e != 44 {
		t.Errorf("without files: errno %d", e)
	}
}

func mustOutput(t *testing.T, m sandbox.Loaded, c sandbox.Call) []byte {
	t.Helper()
	r, err := m.Call(t.Context(), c, quiet{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Output
}

// TestAProcessThatAsksForFiles asks what only a process that a module has taken over can ask. It
// gets no answer, and the error with which serve ends it.
func TestAProcessThatAsksForFiles(t *testing.T) {
	store := contents{}
	secret := store.file("secret", "secret")
	list := store.folder("list", secret)
	asFile := list
	asFile.Kind, asFile.Size = workspace.File, uint64(len(store[list.Digest]))
	file, asLink := store.file("f", "text"), store.file("l", "f")
	asLink.Kind = workspace.Link
	deep := store.folder("deep", file, asLink)
	root, both := store.folder("", asFile, deep), store.folder("", asFile, store.folder("x", list))
	ended := func(h *call) { h.ended = errors.New("ended") }
	ask := func(entries ...workspace.Entry) (digests [][]byte) {
		for _, e := range entries {
			digests = append(digests, e.Digest[:])
		}
		return digests
	}
	for name, c := range map[string]struct {
		root   workspace.Entry
		asked  [][]byte // all but the last are answered
		change func(h *call)
		honest bool
	}{
		"the root":                        {root: root, asked: ask(root), honest: true},
		"a file, a link and the root":     {root: root, asked: ask(root, deep, file, asLink, file, root), honest: true},
		"a file that is a folder's text":  {root: root, asked: ask(root, asFile), honest: true},
		"a folder that is a file, too":    {root: both, asked: ask(both, store.folder("x", list), both, list, secret), honest: true},
		"a folder before the root":        {root: root, asked: ask(deep)},
		"a file before its folder":        {root: root, asked: ask(root, file)},
		"what is not below the root":      {root: root, asked: ask(root, deep, secret)},
		"what a file lists":               {root: root, asked: ask(root, asFile, secret)},
		"what is nowhere":                 {root: root, asked: [][]byte{make([]byte, 32)}},
		"half a digest":                   {root: root, asked: [][]byte{root.Digest[:16]}},
		"more than a digest":              {root: root, asked: [][]byte{append(bytes.Clone(root.Digest[:]), 0)}},
		"nothing":                         {root: root, asked: [][]byte{nil}},
		"the root without files":          {root: root, asked: ask(root), change: func(h *call) { h.Files, h.files = nil, files{} }},
		"the root after the end":          {root: root, asked: ask(root), change: ended},
		"more often than its fuel allows": {root: root, asked: ask(root, root, root), change: func(h *call) { h.module.prepared.Limits.Fuel = 29_999 }},
		"as often as its fuel allows":     {root: root, asked: ask(root, root, root), change: func(h *call) { h.module.prepared.Limits.Fuel = 30_000 }, honest: true},
	} {
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p := &process{in: in}
		p.watch = newWatch(p, time.Second)
		h := &call{Call: sandbox.Call{Files: &sandbox.Files{Root: sandbox.Digest(c.root.Digest), Get: store.get}}, module: &Module{}, process: p}
		h.files = newFiles(sandbox.Digest(c.root.Digest))
		h.module.prepared.Limits = sandbox.DefaultLimits()
		if c.change != nil {
			c.change(h)
		}
		var last error
		for i, digest := range c.asked {
			if last = h.content(digest); last != nil && i < len(c.asked)-1 {
				t.Errorf("%s: question %d: %v", name, i, last)
			}
		}
		if (last == nil) != c.honest || last != nil && !errors.Is(last, errProtocol) {
			t.Errorf("%s: %v", name, last)
		}
		in.Close()
		frames, answers := newFrameReader(out, 1<<20), 0
		for k, body, err := frames.next(); err == nil; k, body, err = frames.next() {
			if k != kindAnswer || !bytes.Equal(body, store[canon.Hash(c.asked[answers])]) {
				t.Errorf("%s: question %d got frame %d with %q", name, answers, k, body)
			}
			answers++
		}
		if want := len(c.asked); answers != want && c.honest || !c.honest && answers != want-1 {
			t.Errorf("%s: %d of %d questions were answered", name, answers, want)
		}
		out.Close()
	}
}
