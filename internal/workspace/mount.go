package workspace

import (
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
)

// Join returns the tree that has a folder at each of these absolute paths, none inside another, and
// the contents of the folders above them, the root last.
func Join(folders map[string]canon.Hash) (root canon.Hash, contents []Content) {
	var entries []Entry
	deeper := map[string]map[string]canon.Hash{}
	for at, digest := range folders {
		name, rest, found := strings.Cut(at[1:], "/")
		if !found {
			entries = append(entries, Entry{Name: name, Kind: Folder, Digest: digest})
			continue
		}
		if deeper[name] == nil {
			deeper[name] = map[string]canon.Hash{}
		}
		deeper[name]["/"+rest] = digest
	}
	for name, below := range deeper {
		digest, above := Join(below)
		entries = append(entries, Entry{Name: name, Kind: Folder, Digest: digest})
		contents = append(contents, above...)
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	folder := Content{Bytes: Encode(entries), Folder: true}
	return folder.Digest(), append(contents, folder)
}

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
