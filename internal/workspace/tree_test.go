package workspace_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/workspace"
)

// shelf keeps contents by digest.
type shelf map[canon.Hash][]byte

func (s shelf) put(content []byte) canon.Hash {
	digest := canon.Sum(content)
	s[digest] = content
	return digest
}

func (s shelf) get(digest canon.Hash) ([]byte, error) {
	content, ok := s[digest]
	if !ok {
		return nil, fmt.Errorf("%s is not there", digest)
	}
	return content, nil
}

// tree puts a tree: a map is a folder, a []byte a file, and a string the target of a link.
func (s shelf) tree(folder map[string]any) canon.Hash {
	var entries []workspace.Entry
	for name, node := range folder {
		switch node := node.(type) {
		case []byte:
			entries = append(entries, workspace.Entry{Name: name, Kind: workspace.File, Size: uint64(len(node)), Digest: s.put(node)})
		case string:
			entries = append(entries, workspace.Entry{Name: name, Kind: workspace.Link, Size: uint64(len(node)), Digest: s.put([]byte(node))})
		case map[string]any:
			entries = append(entries, workspace.Entry{Name: name, Kind: workspace.Folder, Digest: s.tree(node)})
		}
	}
	return s.put(workspace.Encode(entries))
}

type folder = map[string]any

func entries() *rapid.Generator[[]workspace.Entry] {
	return rapid.Custom(func(t *rapid.T) (list []workspace.Entry) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zA-Z.ä-]{1,30}`), 0, 30, rapid.ID).Draw(t, "names")
		for _, name := range names {
			e := workspace.Entry{Name: name, Kind: workspace.Kind(rapid.IntRange(1, 3).Draw(t, "kind"))}
			switch e.Kind {
			case workspace.File:
				e.Size = rapid.Uint64Range(0, workspace.MaxFileBytes).Draw(t, "size")
			case workspace.Link:
				e.Size = rapid.Uint64Range(1, workspace.MaxPath).Draw(t, "size")
			}
			copy(e.Digest[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))
			if workspace.CheckName(name) == nil {
				list = append(list, e)
			}
		}
		return list
	})
}

// TestAFolderHasOneEncoding checks that entries are read back, in any order, and that bytes that
// differ from an encoding in any place are refused or are another folder's.
func TestAFolderHasOneEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := entries().Draw(t, "entries")
		content := workspace.Encode(list)
		got, err := workspace.Decode(content)
		slices.SortFunc(list, func(a, b workspace.Entry) int { return strings.Compare(a.Name, b.Name) })
		if err != nil || len(got) != len(list) || len(list) > 0 && !reflect.DeepEqual(got, list) {
			t.Fatalf("%v, %v; want %v", got, err, list)
		}
		mutant := bytes.Clone(content)
		at := rapid.IntRange(0, len(content)).Draw(t, "at")
		switch rapid.IntRange(0, 2).Draw(t, "change") {
		case 0:
			mutant = slices.Insert(mutant, at, rapid.Byte().Draw(t, "byte"))
		case 1:
			mutant = slices.Delete(mutant, min(at, len(mutant)-1), min(at+1, len(mutant)))
		default:
			mutant[min(at, len(mutant)-1)] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		checkMutant(t, content, mutant)
	})
}

func checkMutant(t rapid.TB, content, mutant []byte) {
	got, err := workspace.Decode(mutant)
	if err != nil {
		return
	}
	if !bytes.Equal(workspace.Encode(got), mutant) {
		t.Errorf("%x is accepted, and is not the encoding of %v", mutant, got)
	}
	if same, _ := workspace.Decode(content); !bytes.Equal(content, mutant) && reflect.DeepEqual(got, same) {
		t.Errorf("%x and %x are one folder", content, mutant)
	}
}

// TestEveryBitOfAFolder is the same for all single changes of one folder.
func TestEveryBitOfAFolder(t *testing.T) {
	content := workspace.Encode([]workspace.Entry{
		{Name: "a.txt", Kind: workspace.File, Size: 300, Digest: canon.Sum([]byte("a"))},
		{Name: "b", Kind: workspace.Link, Size: 5, Digest: canon.Sum([]byte("a.txt"))},
		{Name: "src", Kind: workspace.Folder, Digest: canon.Sum([]byte{0x80})},
	})
	for i := range content {
		for bit := range 8 {
			mutant := bytes.Clone(content)
			mutant[i] ^= 1 << bit
			checkMutant(t, content, mutant)
		}
		if _, err := workspace.Decode(content[:i]); err == nil {
			t.Errorf("the first %d bytes are accepted", i)
		}
		if _, err := workspace.Decode(slices.Delete(bytes.Clone(content), i, i+1)); err == nil {
			t.Errorf("accepted without byte %d", i)
		}
	}
}

func TestFoldersThatAreRefused(t *testing.T) {
	digest := canon.Sum()
	file := func(name string) workspace.Entry {
		return workspace.Entry{Name: name, Kind: workspace.File, Digest: digest}
	}
	for name, tt := range map[string]struct {
		entries []workspace.Entry
		want    string
	}{
		"empty name":        {[]workspace.Entry{file("")}, `"" is not a name`},
		"dot":               {[]workspace.Entry{file(".")}, `"." is not a name`},
		"two dots":          {[]workspace.Entry{file("..")}, `".." is not a name`},
		"slash":             {[]workspace.Entry{file("a/b")}, "slash"},
		"zero byte":         {[]workspace.Entry{file("a\x00")}, "zero byte"},
		"not UTF-8":         {[]workspace.Entry{file("a\xff")}, "UTF-8"},
		"long name":         {[]workspace.Entry{file(strings.Repeat("a", workspace.MaxName+1))}, "more than 255 bytes"},
		"twice":             {[]workspace.Entry{file("a"), file("a")}, `"a" does not follow "a"`},
		"no kind":           {[]workspace.Entry{{Name: "a", Digest: digest}}, "no kind 0"},
		"unknown kind":      {[]workspace.Entry{{Name: "a", Kind: 4, Digest: digest}}, "no kind 4"},
		"folder with size":  {[]workspace.Entry{{Name: "a", Kind: workspace.Folder, Size: 1, Digest: digest}}, "a folder cannot have 1 bytes"},
		"large file":        {[]workspace.Entry{{Name: "a", Kind: workspace.File, Size: workspace.MaxFileBytes + 1, Digest: digest}}, "a file cannot have"},
		"link without text": {[]workspace.Entry{{Name: "a", Kind: workspace.Link, Digest: digest}}, "a link cannot have 0 bytes"},
		"long link":         {[]workspace.Entry{{Name: "a", Kind: workspace.Link, Size: workspace.MaxPath + 1, Digest: digest}}, "a link cannot have"},
		"many entries":      {many(workspace.MaxEntries + 1), "more than 100000 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := workspace.Decode(workspace.Encode(tt.entries)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
	valid := workspace.Encode([]workspace.Entry{file("a")})
	for name, content := range map[string][]byte{
		"nothing":           nil,
		"null":              {0xf6},
		"a map":             {0xa0},
		"more behind it":    append(bytes.Clone(valid), 0),
		"long array head":   append([]byte{0x98, 1}, valid[1:]...),
		"indefinite length": append(append([]byte{0x9f}, valid[1:]...), 0xff),
		"null as the size":  bytes.Replace(valid, []byte{0x01, 0x00}, []byte{0x01, 0xf6}, 1),
		"digest of 31":      bytes.Replace(valid[:len(valid)-1], []byte{0x58, 32}, []byte{0x58, 31}, 1),
		"digest of 33":      append(bytes.Replace(valid, []byte{0x58, 32}, []byte{0x58, 33}, 1), 0),
		"unsorted":          append(append([]byte{0x82}, workspace.Encode([]workspace.Entry{file("b")})[1:]...), valid[1:]...),
		"kind 257":          bytes.Replace(valid, []byte{0x01, 0x00}, []byte{0x19, 0x01, 0x01, 0x00}, 1),
	} {
		if _, err := workspace.Decode(content); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func many(n int) []workspace.Entry {
	list := make([]workspace.Entry, n)
	for i := range list {
		list[i] = workspace.Entry{Name: fmt.Sprintf("%06d", i), Kind: workspace.File}
	}
	return list
}

func TestWalk(t *testing.T) {
	s := shelf{}
	root := s.tree(folder{"b": []byte("b"), "a": folder{"y": "x", "x": []byte("1")}, "a-": []byte(nil), "empty": folder{}})
	var paths []string
	err := workspace.Walk(s.get, root, func(path string, e workspace.Entry) error {
		paths = append(paths, fmt.Sprintf("%s %s %d", path, e.Kind, e.Size))
		return nil
	})
	want := []string{"a folder 0", "a/x file 1", "a/y link 1", "a- file 0", "b file 1", "empty folder 0"}
	if err != nil || !slices.Equal(paths, want) {
		t.Errorf("%q, %v", paths, err)
	}
	stop := errors.New("stop")
	if err := workspace.Walk(s.get, root, func(string, workspace.Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of visit became %v", err)
	}
}

// TestWalkEndsAtTheBounds gives trees that are small to store and large to walk.
func TestWalkEndsAtTheBounds(t *testing.T) {
	for name, tt := range map[string]struct {
		tree func(s shelf) canon.Hash
		want string
	}{
		"a folder a hundred times in itself": {func(s shelf) canon.Hash {
			root := s.tree(folder{})
			for range 100 {
				list := many(100)
				for i := range list {
					list[i] = workspace.Entry{Name: list[i].Name, Kind: workspace.Folder, Digest: root}
				}
				root = s.put(workspace.Encode(list))
			}
			return root
		}, "more than 100000 files"},
		"deep": {func(s shelf) canon.Hash {
			root := s.tree(folder{})
			for range workspace.MaxDepth + 1 {
				root = s.put(workspace.Encode([]workspace.Entry{{Name: "d", Kind: workspace.Folder, Digest: root}}))
			}
			return root
		}, "more than 200 names"},
		"a long path": {func(s shelf) canon.Hash {
			root := s.tree(folder{})
			for range 17 {
				root = s.put(workspace.Encode([]workspace.Entry{{Name: strings.Repeat("d", 250), Kind: workspace.Folder, Digest: root}}))
			}
			return root
		}, "more than 4096 bytes"},
		"one file five times": {func(s shelf) canon.Hash {
			list := many(5)
			for i := range list {
				list[i].Size = workspace.MaxFileBytes
			}
			return s.put(workspace.Encode(list))
		}, "more than 268435456 bytes"},
		"a content that is not there": {func(shelf) canon.Hash { return canon.Sum() }, "not there"},
		"a content that is another":   {func(s shelf) canon.Hash { s[canon.Hash{1}] = []byte{0x80}; return canon.Hash{1} }, "another digest"},
		"a root that is no folder":    {func(s shelf) canon.Hash { return s.put([]byte("text")) }, "a folder's content"},
	} {
		t.Run(name, func(t *testing.T) {
			s := shelf{}
			root := tt.tree(s)
			ignore := func(string, workspace.Entry) error { return nil }
			if err := workspace.Walk(s.get, root, ignore); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Walk: %v; want %q", err, tt.want)
			}
		})
	}
}

func TestDiff(t *testing.T) {
	s := shelf{}
	from := s.tree(folder{
		"same": folder{"x": []byte("x")}, "file": []byte("1"), "gone": folder{"in": folder{"f": []byte("f")}},
		"kind": folder{"k": []byte("k")}, "dir": folder{"a": []byte("a"), "b": "a"}, "link": "file",
	})
	to := s.tree(folder{
		"same": folder{"x": []byte("x")}, "file": []byte("2"), "new": folder{"in": folder{"f": []byte("f")}},
		"kind": []byte("k"), "dir": folder{"a": []byte("a"), "b": "c", "c": []byte(nil)}, "dir-": []byte("d"), "link": []byte("file"),
	})
	delete(s, s.tree(folder{"x": []byte("x")})) // equal folders are not read
	changes, err := workspace.Diff(s.get, from, to)
	var got []string
	for _, c := range changes {
		got = append(got, c.Path+": "+c.Old.Kind.String()+" "+c.New.Kind.String())
	}
	want := []string{
		"dir-: nothing file", "dir/b: link link", "dir/c: nothing file", "file: file file",
		"gone: folder nothing", "kind: folder file", "link: link file", "new: nothing folder",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if changes, err := workspace.Diff(s.get, from, from); len(changes) > 0 || err != nil {
		t.Errorf("a tree differs from itself in %v, %v", changes, err)
	}
	for _, pair := range [][2]canon.Hash{{from, canon.Sum()}, {canon.Sum(), from}} {
		if _, err := workspace.Diff(s.get, pair[0], pair[1]); err == nil || !strings.Contains(err.Error(), "folder /: ") {
			t.Errorf("Diff: %v", err)
		}
	}
}
