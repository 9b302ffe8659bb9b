package worker

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/workspace"
	"github.com/starling-host/starling/runtime/tool"
)

// contents are what a Get finds.
type contents map[canon.Hash][]byte

func (c contents) get(h canon.Hash) ([]byte, error) {
	if b, ok := c[h]; ok {
		return b, nil
	}
	return nil, fmt.Errorf("no content %s", h)
}

func (c contents) put(b []byte) canon.Hash { h := canon.Sum(b); c[h] = b; return h }

func (c contents) file(name, text string) workspace.Entry {
	return workspace.Entry{Name: name, Kind: workspace.File, Size: uint64(len(text)), Digest: c.put([]byte(text))}
}

func (c contents) folder(name string, entries ...workspace.Entry) workspace.Entry {
	return workspace.Entry{Name: name, Kind: workspace.Folder, Digest: c.put(workspace.Encode(entries))}
}

// files are a read-only mount and one that can be written to.
func (c contents) files() *sandbox.Files {
	big := strings.Repeat("big", 1<<20)
	root := c.folder("", c.folder("data", c.file("a", "hello")), c.folder("work", c.file("b", "old"), c.folder("d", c.file("big", big), c.file("c", "old"))))
	return &sandbox.Files{Root: sandbox.Digest(root.Digest), Mounts: []sandbox.Mount{{At: "/data"}, {At: "/work", Writable: true}}, Get: c.get}
}

// writes is a program that reads files and leaves others, and one that leaves none.
func writes() *wasmtest.Script {
	var imports []wasmtest.Import
	for _, name := range []string{"fd_read", "fd_write", "fd_close", "path_open", "path_rename", "path_create_directory"} {
		t, _ := rewrite.ImportType(abi.WASIModule, name)
		imports = append(imports, wasmtest.Import{Module: abi.WASIModule, Name: name, Type: t})
	}
	p := wasmtest.NewScript(imports, 20)
	read, count, fd := p.Room(make([]byte, 64)), p.Room(make([]byte, 8)), p.Room(make([]byte, 8))
	into := p.Room(append([]byte{byte(read), byte(read >> 8), byte(read >> 16), byte(read >> 24)}, 64, 0, 0, 0))
	p.Call("path_open", 3, 1, "a", 0, 2, 0, 0, fd)
	p.Call("fd_read", 5, into, 1, count)
	p.Call("path_open", 4, 1, "d/big", 0, 64|2, 0, 0, fd)
	p.Call("fd_write", 6, p.Vector("new"), 1, count)
	p.Call("path_create_directory", 4, "e")
	p.Call("path_rename", 4, "b", 4, "e/f")
	return p
}

func TestFilesAreTheSameInAProcess(t *testing.T) {
	store, script := contents{}, writes()
	limits := sandbox.Limits{OutputBytes: wasmtest.ScriptRoom}
	here, there := mustLoad(t, inline(t), script.Module(), limits), mustLoad(t, workers(t, Config{}), script.Module(), limits)
	c := sandbox.Call{Tool: "script", Input: script.Input(), Files: store.files()}
	want, err := here.Call(t.Context(), c, quiet{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one in the same process
		got, err := there.Call(t.Context(), c, quiet{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got.Contents) != 5 || got.Left == c.Files.Root {
			t.Fatalf("%d contents\n%s", len(got.Contents), diff)
		}
	}
	for i := range 6 {
		if e := wasmtest.Ran(want.Output).Result(i); e != 0 {
			t.Errorf("call %d: errno %d", i, e)
		}
	}
	delete(store, canon.Sum([]byte("hello")))
	r, err := there.Call(t.Context(), c, quiet{})
	if !errors.Is(err, tool.ErrHost) || !strings.Contains(err.Error(), "no content") || r.Left != (sandbox.Digest{}) {
		t.Errorf("a content that is gone: %v, %v", r.Left, err)
	}
	if _, err := there.Call(t.Context(), sandbox.Call{Tool: "script", Input: script.Input()}, quiet{}); err != nil {
		t.Errorf("without files: %v", err)
	}
}

// TestAProcessThatLiesAboutFiles sends what only a process that a module has taken over can send.
func TestAProcessThatLiesAboutFiles(t *testing.T) {
	store := contents{}
	files := store.files()
	newCall := func() *call {
		h := &call{Call: sandbox.Call{Files: files}, module: &Module{}, files: newFiles(files.Root)}
		h.module.prepared.Limits = sandbox.DefaultLimits()
		for digest, b := range store { // as after each folder was asked for
			if entries, err := workspace.Decode(b); err == nil {
				h.files.folders[digest] = b
				for _, e := range entries {
					h.files.known[kindOf{e.Digest, e.Kind}] = e.Size
				}
			}
		}
		return h
	}
	other := contents{}
	data, old, news := store.folder("data", store.file("a", "hello")), store.file("b", "old"), other.file("n", "news")
	leave := func(root workspace.Entry, list ...workspace.Entry) func(h *call) error {
		return func(h *call) error {
			for _, e := range append(list, root) {
				if err := h.leaves(append(appendFlag(nil, e.Kind == workspace.Folder), other[e.Digest]...)); err != nil {
					return err
				}
			}
			_, err := h.tree(root.Digest[:])
			return err
		}
	}
	work := func(entries ...workspace.Entry) workspace.Entry { return other.folder("work", entries...) }
	root := func(entries ...workspace.Entry) workspace.Entry { return other.folder("", entries...) }
	long, moved, renamed, link := old, old, old, news
	long.Size, moved.Kind, link.Kind = 4, workspace.Link, workspace.Link
	renamed.Name = "moved"
	zero := other.file("z", "a\x00b")
	zero.Kind = workspace.Link
	deep := other.folder("d", news)
	for range 210 {
		deep = other.folder("d", deep)
	}
	bomb, bombs := other.folder("d", news), []workspace.Entry{news}
	for range 18 {
		bombs = append(bombs, bomb)
		a, b := bomb, bomb
		a.Name, b.Name = "a", "b"
		bomb = other.folder("d", a, b)
	}
	var deeper []workspace.Entry
	for e := deep; e.Digest != news.Digest; {
		entries, _ := workspace.Decode(other[e.Digest])
		deeper, e = append([]workspace.Entry{e}, deeper...), entries[0]
	}
	for _, c := range []struct {
		name   string
		honest bool
		do     func(h *call) error
	}{
		{"an honest tree", true, leave(root(data, work(renamed, news)), news, work(renamed, news))},
		{"an honest link", true, leave(root(data, work(link)), news, work(link))},
		{"the same tree", true, func(h *call) error { _, err := h.tree(files.Root[:]); return err }},
		{"no root", false, func(h *call) error { _, err := h.tree(nil); return err }},
		{"half a root", false, func(h *call) error { _, err := h.tree(files.Root[:16]); return err }},
		{"a root without files", false, func(h *call) error { h.Files = nil; _, err := h.tree(files.Root[:]); return err }},
		{"an unknown root", false, func(h *call) error { _, err := h.tree(make([]byte, 32)); return err }},
		{"a file as the root", false, func(h *call) error { _, err := h.tree(old.Digest[:]); return err }},
		{"a content twice", false, leave(root(data, work(news)), news, news, work(news))},
		{"a content that is not used", false, leave(root(data, work(old)), news, work(old))},
		{"an unused content of the same tree", false, func(h *call) error {
			if err := h.leaves(append([]byte{0}, "unused"...)); err != nil {
				return err
			}
			_, err := h.tree(files.Root[:])
			return err
		}},
		{"an entry that does not exist", false, leave(root(data, work(news)), work(news))},
		{"a folder before what it lists", false, leave(root(data, work(news)), work(news), news)},
		{"another size than before", false, leave(root(data, work(long)), work(long))},
		{"a file that becomes a link", false, leave(root(data, work(moved)), work(moved))},
		{"a link with a zero byte", false, leave(root(data, work(zero)), zero, work(zero))},
		{"a change of a read-only mount", false, leave(root(other.folder("data", news), store.folder("work", old)), news, other.folder("data", news), store.folder("work", old))},
		{"a change beside the mounts", false, leave(root(data, news, work(old)), news, work(old))},
		{"a mount that is gone", false, leave(root(data))},
		{"too deep a tree", false, leave(root(data, work(deep)), append(append([]workspace.Entry{news}, deeper...), work(deep))...)},
		{"too many names", false, leave(root(data, work(bomb)), append(bombs, bomb, work(bomb))...)},
		{"bytes that are not a folder", false, func(h *call) error { return h.leaves([]byte{1, 0xff}) }},
		{"an unknown flag", false, func(h *call) error { return h.leaves([]byte{2}) }},
		{"contents without files", false, func(h *call) error { h.Files = nil; return h.leaves([]byte{0}) }},
		{"more bytes than a tree has", false, func(h *call) error { h.files.bytes = workspace.MaxBytes + maxContent; return h.leaves([]byte{0, 1}) }},
		{"more contents than a tree has", false, func(h *call) error {
			h.files.contents = make([]workspace.Content, workspace.MaxEntries+1)
			return h.leaves([]byte{0, 1})
		}},
		{"a question about another digest", false, func(h *call) error { return h.content(news.Digest[:]) }},
		{"a question with 31 bytes", false, func(h *call) error { return h.content(old.Digest[:31]) }},
		{"a question without files", false, func(h *call) error { h.Files = nil; return h.content(old.Digest[:]) }},
		{"a question after the end", false, func(h *call) error { h.ended = errors.New("ended"); return h.content(old.Digest[:]) }},
		{"more questions than fuel", false, func(h *call) error { h.module.prepared.Limits.Fuel = 9_999; return h.content(old.Digest[:]) }},
	} {
		if err := c.do(newCall()); (err == nil) != c.honest || err != nil && !errors.Is(err, errProtocol) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
