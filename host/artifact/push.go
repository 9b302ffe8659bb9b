package artifact

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"time"

	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/internal/work"
)

// The types of a signature as an artefact about a module.
const (
	typeSigned    = "application/vnd.starling.tool-signature.v1"
	typeSignature = "application/vnd.starling.tool-signature.v1+text"
)

// Push stores a module under a name with a tag, with annotations about it, and pins the digest in
// the lock file. It returns the name with the digest. The same module and annotations always have
// the same digest.
func (f Finder) Push(ctx context.Context, ref string, wasm []byte, annotations map[string]string) (string, error) {
	n, err := parse(ref)
	if err != nil {
		return "", err
	}
	if n.scheme == schemeHTTPS || n.digest != "" {
		return "", &Error{Ref: ref, Reason: "a tool is pushed to a tag", Hint: "want oci://REGISTRY/NAME:TAG or oci-layout:FOLDER:TAG"}
	}
	layer := content.NewDescriptorFromBytes(typeModule, wasm)
	layer.Annotations = map[string]string{ocispec.AnnotationTitle: annotations[ocispec.AnnotationTitle] + ".wasm"}
	text, err := json.Marshal(map[string]any{
		"created": time.Unix(0, 0).UTC(), "architecture": "wasm", "os": "wasip1", "layerDigests": []string{string(layer.Digest)},
	})
	if err != nil {
		return "", err
	}
	config := content.NewDescriptorFromBytes(typeConfig, text)
	d, err := f.store(ctx, n, wasm, text, ocispec.Manifest{Config: config, Layers: []ocispec.Descriptor{layer}, Annotations: annotations}, n.tag)
	if err != nil {
		return "", failed(ctx, ref, err)
	}
	cache, err := f.openCache()
	if err != nil {
		return "", err
	}
	_, err = f.lockFile().pin(filepath.Join(cache.dir, "pins.lock"), n.key(), string(d.Digest), true)
	return n.pinned(string(d.Digest)), err
}

// Attach stores a signature beside a module that was pulled, where it was pulled from and in the
// cache.
func (f Finder) Attach(ctx context.Context, ref string, p Pulled, signed []byte) error {
	n, err := parse(ref)
	if err != nil {
		return err
	}
	cache, err := f.openCache()
	if err != nil {
		return err
	}
	subject, _, err := document(newBudget(ctx), cache, p.Manifest)
	if err != nil {
		return failed(ctx, ref, err)
	}
	m := ocispec.Manifest{ArtifactType: typeSigned, Config: ocispec.DescriptorEmptyJSON, Subject: &subject,
		Layers: []ocispec.Descriptor{content.NewDescriptorFromBytes(typeSignature, signed)}}
	m.Config.Data = nil
	for _, to := range []name{n, {scheme: schemeLayout, at: cache.dir}} {
		if _, err := f.store(ctx, to, signed, ocispec.DescriptorEmptyJSON.Data, m, ""); err != nil {
			return failed(ctx, ref, err)
		}
	}
	return nil
}

// store pushes a layer, a config and their manifest, with a tag unless that is empty.
func (f Finder) store(ctx context.Context, n name, layer, config []byte, m ocispec.Manifest, tag string) (d ocispec.Descriptor, err error) {
	defer registry.Doing(ctx, "pushing "+n.key())()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	b := newBudget(ctx)
	to, err := f.open(b, n, true)
	if err != nil {
		return d, err
	}
	m.Versioned, m.MediaType = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageManifest
	text, err := json.Marshal(m)
	if err != nil {
		return d, err
	}
	d = content.NewDescriptorFromBytes(m.MediaType, text)
	d.ArtifactType = m.ArtifactType
	for _, part := range []struct {
		d    ocispec.Descriptor
		text []byte
	}{{m.Layers[0], layer}, {m.Config, config}, {d, text}} {
		there, err := to.Exists(ctx, part.d)
		if err == nil && !there {
			err = to.Push(ctx, part.d, bytes.NewReader(part.text))
		}
		if err != nil {
			return d, err
		}
	}
	if tag == "" {
		return d, nil
	}
	if err := to.Tag(ctx, d, tag); err != nil {
		return d, err
	}
	_, _, err = document(b, to, tag, d) // what others get now
	return d, err
}

// Listed is a module that [Finder.List] found.
type Listed struct {
	Name        string            `json:"name"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"` // of the module
	Annotations map[string]string `json:"annotations,omitempty"`
}

// maxListed bounds the tags that are looked at.
const maxListed = 200

// List returns the tools of a repository or layout folder by tag or, for an empty name, those in
// the cache. More reports whether there are others.
func (f Finder) List(ctx context.Context, ref string) (all []Listed, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	b := newBudget(ctx)
	var n name
	var from place
	if ref == "" {
		from, err = f.openCache()
	} else if n, err = parse(ref); err == nil {
		if n.scheme == schemeHTTPS || n.digest != "" {
			return nil, false, &Error{Ref: ref, Reason: "this is not a repository", Hint: "want oci://REGISTRY/NAME or oci-layout:FOLDER"}
		}
		from, err = f.open(b, n, false)
	}
	if err != nil {
		return nil, false, failed(ctx, cmp.Or(ref, "the cache"), err)
	}
	defer registry.Doing(ctx, "listing "+cmp.Or(ref, "the cache"))()
	var tags []string
	err = from.Tags(ctx, "", func(page []string) error {
		if tags = append(tags, page...); len(tags) > maxListed {
			tags, more = tags[:maxListed], true
			return errEnough
		}
		return nil
	})
	if err != nil && !more {
		return nil, false, failed(ctx, ref, err)
	}
	for _, tag := range tags {
		d, m, text, err := manifestOf(b, from, tag)
		b.Release(len(text))
		layer, wrong := layerOf(m)
		if errors.Is(err, work.ErrExceeded) {
			return nil, false, failed(ctx, ref, err)
		}
		one := Listed{Name: tag, Digest: string(d.Digest), Size: layer.Size, Annotations: m.Annotations}
		if ref != "" {
			n.tag = tag
			one.Name = n.key()
		}
		if file, failed := from.Resolve(ctx, tag); failed == nil && file.MediaType == typeModule { // of a URL
			one = Listed{Name: one.Name, Digest: string(file.Digest), Size: file.Size}
		} else if err != nil || wrong != nil {
			continue // it was removed meanwhile, or is a signature or an artefact of another kind
		}
		all = append(all, one)
	}
	return all, more, nil
}

var errEnough = errors.New("enough")
