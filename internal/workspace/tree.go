package workspace

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
)

// Bounds of a tree. A larger one is not imported or walked.
const (
	MaxName      = 255       // bytes of a name
	MaxPath      = 4096      // bytes of a path, and of a link's target
	MaxDepth     = 200       // names in a path
	MaxEntries   = 100_000   // files, folders and links
	MaxFileBytes = 64 << 20  // of one file
	MaxBytes     = 256 << 20 // of all files and links; equal ones are counted each time
)

// Kind is the type of an entry.
type Kind uint8

// The kinds of entries. Their numbers are part of the format.
const (
	File   Kind = 1
	Folder Kind = 2
	Link   Kind = 3 // a symbolic link; its content is the target
)

func (k Kind) String() string { return [...]string{"nothing", "file", "folder", "link"}[k] }

// Entry is one name in a folder.
type Entry struct {
	Name   string
	Kind   Kind
	Size   uint64 // bytes of the content; 0 for a folder
	Digest canon.Hash
}

// CheckName returns an error if no entry can have the name. Names are compared byte by byte: case
// matters, and two spellings of one letter are two names.
func CheckName(name string) error {
	switch {
	case name == "", name == ".", name == "..":
		return fmt.Errorf("%q is not a name", name)
	case len(name) > MaxName:
		return fmt.Errorf("the name %q has more than %d bytes", name, MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("the name %q is not UTF-8", name)
	case strings.ContainsAny(name, "/\x00"):
		return fmt.Errorf("the name %q has a slash or a zero byte in it", name)
	}
	return nil
}

// Encode returns the content of a folder. The entries can be in any order; [Decode] refuses the
// result if one of them is not valid.
func Encode(entries []Entry) []byte {
	byName := func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(entries, byName) {
		entries = slices.SortedFunc(slices.Values(entries), byName)
	}
	content := canon.AppendArray(nil, len(entries))
	for _, e := range entries {
		content = canon.AppendText(canon.AppendArray(content, 4), e.Name)
		content = canon.AppendUint(canon.AppendUint(content, uint64(e.Kind)), e.Size)
		content = canon.AppendBytes(content, e.Digest[:])
	}
	return content
}

// Decode returns the entries of a folder. It refuses everything that [Encode] does not write for
// valid entries.
func Decode(content []byte) ([]Entry, error) {
	var rows []struct {
		_      struct{} `cbor:",toarray"`
		Name   string
		Kind   uint64
		Size   uint64
		Digest []byte
	}
	if err := canon.Unmarshal(content, &rows); err != nil {
		return nil, fmt.Errorf("workspace: a folder's content: %w", err)
	}
	if len(rows) > MaxEntries {
		return nil, fmt.Errorf("workspace: a folder has more than %d entries", MaxEntries)
	}
	entries := make([]Entry, len(rows))
	for i, row := range rows {
		e := Entry{Name: row.Name, Kind: Kind(row.Kind), Size: row.Size}
		err := CheckName(e.Name)
		switch {
		case err != nil:
		case row.Kind < uint64(File) || row.Kind > uint64(Link):
			err = fmt.Errorf("there is no kind %d", row.Kind)
		case e.Size > map[Kind]uint64{File: MaxFileBytes, Link: MaxPath}[e.Kind] || e.Kind == Link && e.Size == 0:
			err = fmt.Errorf("a %s cannot have %d bytes", e.Kind, e.Size)
		case len(row.Digest) != len(e.Digest):
			err = fmt.Errorf("a digest has %d bytes, not %d", len(row.Digest), len(e.Digest))
		case i > 0 && entries[i-1].Name >= e.Name:
			err = fmt.Errorf("%q does not follow %q", e.Name, entries[i-1].Name)
		}
		if err != nil {
			return nil, fmt.Errorf("workspace: entry %d of a folder: %w", i+1, err)
		}
		e.Digest = canon.Hash(row.Digest)
		entries[i] = e
	}
	if !bytes.Equal(Encode(entries), content) {
		return nil, fmt.Errorf("workspace: a folder's content is not in its canonical form")
	}
	return entries, nil
}

// Content is what a digest names: the bytes of a file, the target of a link, or the list of a folder.
type Content struct {
	Bytes  []byte
	Folder bool // Bytes is what Encode returns
}

// Digest returns the BLAKE3-256 of the content.
func (c Content) Digest() canon.Hash { return canon.Sum(c.Bytes) }

// Uses returns the digests that a folder lists; a file or a link uses none.
func (c Content) Uses() (digests []canon.Hash) {
	if c.Folder {
		entries, _ := Decode(c.Bytes) // what Encode wrote
		for _, e := range entries {
			digests = append(digests, e.Digest)
		}
	}
	return digests
}

// Get returns the content of a digest.
type Get func(digest canon.Hash) ([]byte, error)

// Read gets a content and checks that it has its digest.
func (get Get) Read(digest canon.Hash) ([]byte, error) {
	content, err := get(digest)
	if err == nil && canon.Sum(content) != digest {
		err = fmt.Errorf("workspace: the content that is stored as %s has another digest", digest)
	}
	return content, err
}

// folder returns the entries of a folder, which has a path in a tree.
func (get Get) folder(at string, digest canon.Hash) ([]Entry, error) {
	content, err := get.Read(digest)
	var list []Entry
	if err == nil {
		list, err = Decode(content)
	}
	if err != nil {
		return nil, fmt.Errorf("folder /%s: %w", at, err)
	}
	return list, nil
}

// CheckBounds returns an error if a tree cannot have a path, or so many entries and bytes.
func CheckBounds(at string, entries int, size uint64) error {
	switch {
	case entries > MaxEntries:
		return fmt.Errorf("the tree has more than %d files, folders and links", MaxEntries)
	case size > MaxBytes:
		return fmt.Errorf("the files of the tree have more than %d bytes", uint64(MaxBytes))
	case len(at) > MaxPath:
		return fmt.Errorf("the path %.80s... has more than %d bytes", at, MaxPath)
	case strings.Count(at, "/") >= MaxDepth:
		return fmt.Errorf("the path %.80s... has more than %d names", at, MaxDepth)
	}
	return nil
}

// Walk visits everything below a root, a folder before what is in it, with paths such as
// "src/main.c". It reads folders, and no files or links: visit can get those. It ends with the
// first error, and at the bounds of a tree.
func Walk(get Get, root canon.Hash, visit func(path string, e Entry) error) error {
	entries, size := 0, uint64(0)
	var walk func(at string, folder canon.Hash) error
	walk = func(at string, folder canon.Hash) error {
		list, err := get.folder(at, folder)
		if err != nil {
			return err
		}
		for _, e := range list {
			p := path.Join(at, e.Name)
			entries, size = entries+1, size+e.Size
			err := CheckBounds(p, entries, size)
			if err == nil {
				err = visit(p, e)
			}
			if err == nil && e.Kind == Folder {
				err = walk(p, e.Digest)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return walk("", root)
}

// Change is a path at which two trees differ. The entry of a tree that has nothing there is zero.
type Change struct {
	Path     string
	Old, New Entry
}

// Diff lists the paths at which two trees differ, in the order of their bytes. A folder that only one
// tree has is one change, with all that is in it. Equal folders are not read. Both trees must be
// within the bounds.
func Diff(get Get, from, to canon.Hash) (changes []Change, err error) {
	var diff func(at string, from, to canon.Hash) error
	diff = func(at string, from, to canon.Hash) error {
		old, err := get.folder(at, from)
		if err != nil {
			return err
		}
		now, err := get.folder(at, to)
		if err != nil {
			return err
		}
		before := map[string]Entry{}
		for _, e := range old {
			before[e.Name] = e
		}
		for _, e := range now {
			p, was := path.Join(at, e.Name), before[e.Name]
			delete(before, e.Name)
			switch {
			case was == e:
			case was.Kind == Folder && e.Kind == Folder:
				if err := diff(p, was.Digest, e.Digest); err != nil {
					return err
				}
			default:
				changes = append(changes, Change{p, was, e})
			}
		}
		for name, e := range before {
			changes = append(changes, Change{path.Join(at, name), e, Entry{}})
		}
		return nil
	}
	if from != to {
		err = diff("", from, to)
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return changes, err
}
