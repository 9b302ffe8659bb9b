package artifact

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"

	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/work"
)

// layout is an OCI layout folder: the cache, or one of the user. Blobs appear under their digest
// as a whole, and the index is replaced in one step under a lock, so a process that dies, and two
// that write at once, leave it valid. It implements the interfaces of oras.
type layout struct {
	*oci.Storage
	dir string
	own bool // the cache
}

// openLayout opens a layout. Only to write it makes what is missing.
func openLayout(dir string, write, own bool) (*layout, error) {
	if write {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	storage, err := oci.NewStorage(dir)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, ocispec.ImageLayoutFile)
	if _, err := os.Stat(file); err != nil && write {
		if err := keyfile.Replace(file, []byte(`{"imageLayoutVersion":"`+ocispec.ImageLayoutVersion+`"}`), 0o600); err != nil {
			return nil, err
		}
	}
	return &layout{storage, dir, own}, nil
}

// Fetch opens a part, if it is a regular file.
func (l *layout) Fetch(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if !digestForm().MatchString(string(d.Digest)) {
		return nil, &Error{Ref: fmt.Sprintf("%.80q", d.Digest), Reason: "this is not a digest of SHA-256", Kind: Refused}
	}
	f, err := keyfile.Open(filepath.Join(l.dir, "blobs", "sha256", d.Digest.Encoded()))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s: %w", d.Digest, errdef.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// index reads the index. One that is missing is empty, and so is a damaged one of the cache: the
// blobs remain.
func (l *layout) index(ctx context.Context) (index ocispec.Index, err error) {
	text, err := keyfile.ReadFile(filepath.Join(l.dir, ocispec.ImageIndexFile), keyfile.MaxBytes)
	if err == nil {
		held := len(text) + bytes.Count(text, []byte("{"))*512 // of a descriptor, twice as the list grows
		if err = work.For(ctx, len(text)).Hold(held); err == nil {
			err = json.Unmarshal(text, &index)
		}
	}
	if err != nil && ctx.Err() == nil && (l.own || errors.Is(err, fs.ErrNotExist)) {
		index, err = ocispec.Index{}, nil
	}
	index.Versioned, index.MediaType = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageIndex
	return index, err
}

// change replaces the index.
func (l *layout) change(ctx context.Context, to func(*ocispec.Index)) error {
	unlock, err := keyfile.Lock(filepath.Join(l.dir, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	index, err := l.index(ctx)
	if err != nil {
		return err
	}
	to(&index)
	text, _ := json.Marshal(index) // which was JSON
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
	return l.change(ctx, func(index *ocispec.Index) {
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
	return l.change(ctx, func(index *ocispec.Index) {
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

// Resolve finds a manifest by its tag or digest. A tag that looks like a digest is none, and a digest
// leads to its blob, whatever the index says about it.
func (l *layout) Resolve(ctx context.Context, ref string) (ocispec.Descriptor, error) {
	if digestForm().MatchString(ref) {
		d := ocispec.Descriptor{Digest: digest.Digest(ref)}
		info, err := os.Stat(filepath.Join(l.dir, "blobs", "sha256", d.Digest.Encoded()))
		if err != nil {
			return d, fmt.Errorf("%s: %w", ref, errdef.ErrNotFound)
		}
		d.Size = info.Size()
		return d, nil
	}
	index, err := l.index(ctx)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	for _, m := range index.Manifests {
		if tagOf(m) == ref {
			return m, nil
		}
	}
	return ocispec.Descriptor{}, fmt.Errorf("%s: %w", ref, errdef.ErrNotFound)
}

// referrers calls with the manifests about another one, such as its signatures.
func (l *layout) referrers(b *work.Budget, of digest.Digest, each func([]ocispec.Descriptor) error) error {
	index, err := l.index(b.Context())
	if err != nil {
		return err
	}
	for _, d := range index.Manifests {
		if !isManifest(d.MediaType) || !digestForm().MatchString(string(d.Digest)) {
			continue
		}
		listed, text, err := document(b, l, string(d.Digest))
		var m ocispec.Manifest
		if errors.Is(err, work.ErrExceeded) {
			return err
		}
		if err == nil && json.Unmarshal(text, &m) == nil && m.Subject != nil && m.Subject.Digest == of {
			listed.ArtifactType = m.ArtifactType
			if err := each([]ocispec.Descriptor{listed}); err != nil {
				return err
			}
		}
		b.Release(len(text))
	}
	return nil
}

// Tags calls with the tags of the layout.
func (l *layout) Tags(ctx context.Context, _ string, with func([]string) error) error {
	index, err := l.index(ctx)
	if err != nil {
		return err
	}
	var tags []string
	for _, m := range index.Manifests {
		if tag := tagOf(m); tag != "" {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return with(tags)
}
