package workspace

import (
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
	folder := Content{Bytes: Encode(entries), Folder: true}
	return folder.Digest(), append(contents, folder)
}
