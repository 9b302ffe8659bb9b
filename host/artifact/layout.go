package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"

	"github.com/starling-host/starling/internal/keyfile"
)

// layout is an OCI layout folder: the cache, or one of the user. Blobs appear under their digest
// as a whole, and the index is replaced in one step under a lock, so a process that dies, and two
// that write at once, leave it valid. It implements the interfaces of oras.
type layout struct {
	*oci.Storage
	dir string
}

func openLayout(dir string) (*layout, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	storage, err := oci.NewStorage(dir)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, ocispec.ImageLayoutFile)
	if _, err := os.Stat(file); err != nil {
		if err := keyfile.Replace(file, []byte(`{"imageLayoutVersion":"`+ocispec.ImageLayoutVersion+`"}`), 0o600); err != nil {
			return nil, err
		}
	}
	return &layout{storage, dir}, nil
}

// index reads the index. One that is missing or damaged is empty: the blobs remain.
func (l *layout) index() (index ocispec.Index) {
	text, err := keyfile.ReadFile(filepath.Join(l.dir, ocispec.ImageIndexFile), keyfile.MaxBytes)
	if err != nil || json.Unmarshal(text, &index) != nil {
		index = ocispec.Index{}
	}
	index.Versioned, index.MediaType = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageIndex
	return index
}

// change replaces the index.
func (l *layout) change(to func(*ocispec.Index)) error {
	unlock, err := keyfile.Lock(filepath.Join(l.dir, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	index := l.index()
	to(&index)
	text, err := json.Marshal(index)
	if err != nil {
		return err
	}
	return keyfile.Replace(filepath.Join(l.dir, ocispec.ImageIndexFile), text, 0o600)
}

// Push adds a blob, and a manifest to the index, too.
func (l *layout) Push(ctx context.Context, d ocispec.Descriptor, r io.Reader) error {
	if err := l.Storage.Push(ctx, d, r); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
		return err
	}
	if d.MediaType != ocispec.MediaTypeImageManifest {
		return nil
	}
	return l.change(func(index *ocispec.Index) {
		if !slices.ContainsFunc(index.Manifests, func(m ocispec.Descriptor) bool { return m.Digest == d.Digest }) {
			index.Manifests = append(index.Manifests, ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, ArtifactType: d.ArtifactType})
		}
	})
}

// Tag gives a manifest a name, in place of another one that has it.
func (l *layout) Tag(ctx context.Context, d ocispec.Descriptor, ref string) error {
	if is, err := l.Resolve(ctx, ref); err == nil && is.Digest == d.Digest {
		return nil
	}
	return l.change(func(index *ocispec.Index) {
		for i, m := range index.Manifests {
			if tagOf(m) == ref {
				index.Manifests[i].Annotations = nil // it stays, under its digest
			}
		}
		index.Manifests = slices.DeleteFunc(index.Manifests, func(m ocispec.Descriptor) bool { return m.Digest == d.Digest && tagOf(m) == "" })
		index.Manifests = append(index.Manifests, ocispec.Descriptor{
			MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, Annotations: map[string]string{ocispec.AnnotationRefName: ref},
		})
	})
}

func tagOf(d ocispec.Descriptor) string { return d.Annotations[ocispec.AnnotationRefName] }

// Resolve finds a manifest by its tag or digest.
func (l *layout) Resolve(_ context.Context, ref string) (ocispec.Descriptor, error) {
	for _, m := range l.index().Manifests {
		if tagOf(m) == ref || m.Digest.String() == ref {
			return m, nil
		}
	}
	return ocispec.Descriptor{}, fmt.Errorf("%s: %w", ref, errdef.ErrNotFound)
}

// Predecessors returns the manifests about another one, such as its signatures.
func (l *layout) Predecessors(ctx context.Context, of ocispec.Descriptor) (found []ocispec.Descriptor, err error) {
	for _, d := range l.index().Manifests {
		if d.MediaType != ocispec.MediaTypeImageManifest || d.Size > maxManifest {
			continue
		}
		var m ocispec.Manifest
		text, err := content.FetchAll(ctx, l, d)
		if err == nil && json.Unmarshal(text, &m) == nil && m.Subject != nil && m.Subject.Digest == of.Digest {
			d.ArtifactType = m.ArtifactType
			found = append(found, d)
		}
	}
	return found, nil
}

// Tags calls with the tags of the layout.
func (l *layout) Tags(_ context.Context, _ string, with func([]string) error) error {
	var tags []string
	for _, m := range l.index().Manifests {
		if tag := tagOf(m); tag != "" {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return with(tags)
}
