package eventlog

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/workspace"
)

// Content is a part of a tree of files (spec/workspace.md): the bytes of a file, the target of a link,
// or the list of a folder.
type Content struct {
	Bytes []byte
	Uses  []canon.Hash // the digests that a folder lists; none for a file or a link
}

// TreeUserPrefix begins the users that are folders. No tenant and no new run has an id that begins so.
const TreeUserPrefix = "-tree/"

// TreeUser is the user of the contents that a folder lists, see [UseModules]: they are kept as long as
// the folder is.
func TreeUser(folder canon.Hash) string { return TreeUserPrefix + folder.String() }

// Need is something that a run needs beside its events: a module, or a content of the files of its calls.
type Need struct {
	Content
	Digest canon.Hash
	Module bool
	Folder bool
}

// Needs finds what runs need, everything once. The zero value has found nothing.
type Needs struct {
	modules, folders map[canon.Hash]bool
	sizes            map[canon.Hash]int // of contents
}

// Of calls visit with what an event needs and no event before it has needed: modules, and all contents
// of the files that a call was given or left, a folder after everything that it lists. The error is
// [event.ErrEncrypted] if the event does not show its needs. Else it names the file that from does not
// have, or the folder whose content is wrong.
func (n *Needs) Of(ctx context.Context, e event.Event, from ModuleReader, visit func(Need) error) error {
	modules, roots, err := e.Needs()
	for _, digest := range modules {
		if err != nil || n.modules[digest] {
			continue
		}
		if n.modules == nil {
			n.modules = map[canon.Hash]bool{}
		}
		n.modules[digest] = true
		need := Need{Digest: digest, Module: true}
		if need.Bytes, err = from.Module(ctx, digest); err == nil {
			err = visit(need)
		}
	}
	for _, root := range roots {
		if err == nil {
			err = n.Tree(ctx, root, from, visit)
		}
	}
	if err != nil && !errors.Is(err, event.ErrEncrypted) { // which names the run
		err = fmt.Errorf("run %q: %w", e.RunID, err)
	}
	return err
}

// Tree is Of for the files with one root. A tree with a folder in it twice is as quick as one without, so a
// small bundle cannot ask for much work.
func (n *Needs) Tree(ctx context.Context, root canon.Hash, from ModuleReader, visit func(Need) error) error {
	if n.sizes == nil {
		n.folders, n.sizes = map[canon.Hash]bool{}, map[canon.Hash]int{}
	}
	var folder func(at string, digest canon.Hash, depth int) error
	file := func(e workspace.Entry) (err error) {
		size, known := n.sizes[e.Digest]
		if !known {
			need := Need{Digest: e.Digest}
			if need.Bytes, err = from.Module(ctx, e.Digest); err == nil {
				err = visit(need)
			}
			if err != nil {
				return err
			}
			size = len(need.Bytes)
			n.sizes[e.Digest] = size
		}
		if uint64(size) != e.Size {
			return wrongTree{fmt.Errorf("%v has %d bytes, where the folder lists %d", e.Digest, size, e.Size)}
		}
		return nil
	}
	folder = func(at string, digest canon.Hash, depth int) error {
		if n.folders[digest] {
			return nil
		}
		need := Need{Digest: digest, Folder: true}
		list, err := from.Module(ctx, digest)
		var entries []workspace.Entry
		if err == nil {
			if entries, err = workspace.Decode(list); err == nil && depth > workspace.MaxDepth {
				err = fmt.Errorf("it is inside %d others; at most %d are allowed", depth, workspace.MaxDepth)
			}
			if err != nil {
				err = wrongTree{err}
			}
		}
		if err != nil {
			return fmt.Errorf("its folder %.200q: %w", at, err)
		}
		for _, e := range entries {
			below := path.Join(at, e.Name)
			if e.Kind == workspace.Folder {
				err = folder(below, e.Digest, depth+1)
			} else if err = file(e); err != nil {
				err = fmt.Errorf("its %s %.200q: %w", e.Kind, below, err)
			}
			if err != nil {
				return err
			}
			need.Uses = append(need.Uses, e.Digest)
		}
		n.folders[digest], n.sizes[digest], need.Bytes = true, len(list), list
		return visit(need)
	}
	return folder("/", root, 0)
}

// wrongTree is an error in the content of a folder. It is [ErrLogCorrupt].
type wrongTree struct{ error }

func (e wrongTree) Unwrap() []error { return []error{e.error, ErrLogCorrupt} }
