package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/starling-host/starling/runtime/egress"
)

// fetchTimeout bounds a fetch and a push.
const fetchTimeout = 10 * time.Minute

// Media types of what is pulled. A layer of an image is a tar archive with the module as *.wasm.
const (
	typeConfig   = "application/vnd.wasm.config.v0+json"
	typeModule   = "application/wasm"
	typeImage    = "application/vnd.oci.image.layer.v1.tar"
	typeDocker   = "application/vnd.docker.image.rootfs.diff.tar.gzip"
	typeIndex    = ocispec.MediaTypeImageIndex
	typeList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	typeOldLayer = "application/vnd.wasm.content.layer.v1+wasm"
)

// open returns the registry or the layout folder of a name. To write makes a missing folder.
func (f Finder) open(n name, write bool) (oras.GraphTarget, error) {
	if n.scheme == schemeLayout {
		if _, err := os.Stat(n.at); err != nil && !write {
			return nil, &Error{Ref: n.ref, Reason: "no folder " + n.at}
		}
		return openLayout(n.at)
	}
	repo, err := remote.NewRepository(n.at)
	if err != nil {
		return nil, err
	}
	host := repo.Reference.Host()
	repo.PlainHTTP = f.PlainHTTP || loopback(host)
	repo.MaxMetadataBytes = maxManifest
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("the credentials of docker cannot be read: %w", err)
	}
	repo.Client = &auth.Client{Client: client(host, repo.PlainHTTP), Credential: credentials.Credential(store), Cache: auth.NewCache(), ClientID: "starling-host",
		Header: http.Header{"User-Agent": {"starling-host"}}}
	return repo, nil
}

// fetcher has the connections to registries and other servers of modules.
var fetcher = sync.OnceValue(func() *egress.Fetcher { return egress.NewFetcher(nil, time.Minute) })

// client returns an HTTP client for a host that the user has named. See [egress.Origin] for where
// redirects and the addresses in answers may lead.
func client(host string, plain bool) *http.Client {
	origin := "https://" + host
	if plain {
		origin = "http://" + host
	}
	return &http.Client{Transport: fetcher().Origin(origin), CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if len(via) > 5 {
			return errors.New("too many redirects")
		}
		return nil
	}}
}

// copy brings a module and its signatures from a registry or a folder into the cache. It returns
// the digest of the manifest.
func (f Finder) copy(ctx context.Context, cache *layout, n name, want string, how use, c *claim) (string, error) {
	from, err := f.open(n, false)
	if err != nil {
		return "", err
	}
	ask := n.digest
	if ask == "" && how == pinned {
		ask = want
	}
	if ask == "" {
		ask = n.tag
	}
	d, err := from.Resolve(ctx, ask)
	if err != nil {
		return "", err
	}
	if d.MediaType == typeIndex || d.MediaType == typeList {
		if d, err = choose(ctx, from, d); err != nil {
			return "", err
		}
	} else if digestForm.MatchString(ask) && string(d.Digest) != ask {
		return "", &Error{Ref: n.ref, Reason: "the registry has " + string(d.Digest) + " in its place", Kind: Refused}
	}
	m, err := manifestOf(ctx, from, d)
	if err != nil {
		return "", err
	}
	layer, err := layerOf(m)
	if err != nil {
		return "", err
	}
	if err := graph(ctx, from, cache, d, maxModule, m.Config, layer); err != nil {
		return "", err
	}
	if err := cache.Tag(ctx, d, n.key()); err != nil {
		return "", err
	}
	c.add(ctx, from, cache, n, string(d.Digest))
	return string(d.Digest), nil
}

// graph copies a manifest with some of its parts, within a size.
func graph(ctx context.Context, from oras.GraphTarget, to *layout, d ocispec.Descriptor, most int64, parts ...ocispec.Descriptor) error {
	if from == oras.GraphTarget(to) {
		return nil
	}
	return oras.CopyGraph(ctx, from, to, d, oras.CopyGraphOptions{
		PreCopy: func(_ context.Context, d ocispec.Descriptor) error {
			if d.Size > most || d.Size < 0 || !digestForm.MatchString(string(d.Digest)) {
				return &Error{Ref: fmt.Sprintf("%.80q", d.Digest), Reason: fmt.Sprintf("a part of %d bytes; at most %d are fetched", d.Size, most), Kind: Refused}
			}
			return nil
		},
		FindSuccessors: func(_ context.Context, _ content.Fetcher, of ocispec.Descriptor) ([]ocispec.Descriptor, error) {
			if of.Digest == d.Digest {
				return parts, nil
			}
			return nil, nil
		},
	})
}

// choose returns the first manifest of an index that is for a platform.
func choose(ctx context.Context, from oras.GraphTarget, d ocispec.Descriptor) (ocispec.Descriptor, error) {
	text, err := blob(ctx, from, d, maxManifest)
	if err != nil {
		return d, err
	}
	var index ocispec.Index
	if json.Unmarshal(text, &index) == nil {
		for _, m := range index.Manifests {
			if m.Platform == nil || m.Platform.OS != "unknown" {
				return m, nil
			}
		}
	}
	return d, &Error{Ref: string(d.Digest), Reason: "the index has no manifest of a module", Kind: Refused}
}

// layerOf returns the layer that has the module: the only application/wasm, or the last layer of
// an image. Other layers are for other hosts.
func layerOf(m ocispec.Manifest) (ocispec.Descriptor, error) {
	var found []ocispec.Descriptor
	for _, l := range m.Layers {
		if l.MediaType == typeModule || l.MediaType == typeOldLayer {
			found = append(found, l)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && len(m.Layers) > 0 && packed(m.Layers[len(m.Layers)-1]):
		return m.Layers[len(m.Layers)-1], nil
	}
	return ocispec.Descriptor{}, &Error{Ref: "manifest", Reason: fmt.Sprintf("it has %d layers of the type %s, and needs one", len(found), typeModule), Kind: Refused}
}

// packed reports whether a layer is one of an image.
func packed(d ocispec.Descriptor) bool {
	return d.MediaType == typeImage || d.MediaType == typeImage+"+gzip" || d.MediaType == typeDocker
}

// unpack returns the module in an archive: its only file *.wasm. No file is written.
func unpack(layer []byte) (wasm []byte, err error) {
	var r io.Reader = bytes.NewReader(layer)
	if bytes.HasPrefix(layer, []byte{0x1f, 0x8b}) {
		if r, err = gzip.NewReader(r); err != nil {
			return nil, err
		}
	}
	files := tar.NewReader(io.LimitReader(r, 2*maxModule))
	for {
		h, err := files.Next()
		switch {
		case errors.Is(err, io.EOF) && wasm != nil:
			return wasm, nil
		case err != nil:
			return nil, &Error{Ref: "layer", Reason: "the image is not an archive with one module", Kind: Refused}
		case h.Typeflag != tar.TypeReg || path.Ext(h.Name) != ".wasm":
			continue
		case wasm != nil || h.Size > maxModule:
			return nil, &Error{Ref: "layer", Reason: "the image has several modules, or one that is too large", Kind: Refused}
		}
		if wasm, err = io.ReadAll(files); err != nil {
			return nil, err
		}
	}
}

// download fetches the file of a URL, and its signature, into the cache. It returns its digest.
func (f Finder) download(ctx context.Context, cache *layout, n name, how use, c *claim) (string, error) {
	if n.digest == "" && how == pinned {
		return "", &Error{Ref: n.ref, Reason: "a URL needs the digest of the file, " + n.at + "@sha256:DIGEST", Hint: "fetch the file and print its digest: starling-host tool pull " + n.at}
	}
	text, err := get(ctx, n.at, maxModule)
	if err != nil {
		return "", err
	}
	d := content.NewDescriptorFromBytes(typeModule, text)
	if n.digest != "" && n.digest != string(d.Digest) {
		return "", &Error{Ref: n.ref, Reason: "the file is now " + string(d.Digest), Hint: "compare them before you change the digest: starling-host tool diff " + n.ref + " " + n.pinned(string(d.Digest)), Kind: Refused}
	}
	if err := cache.Push(ctx, d, bytes.NewReader(text)); err != nil {
		return "", err
	}
	if err := cache.Tag(ctx, d, n.key()+"@"+string(d.Digest)); err != nil {
		return "", err
	}
	if signature, err := get(ctx, n.at+SignatureSuffix, maxSignature); err == nil {
		s := content.NewDescriptorFromBytes(typeSignature, signature)
		if err := cache.Push(ctx, s, bytes.NewReader(signature)); err != nil {
			return "", err
		}
		if err := cache.Tag(ctx, s, n.key()+"@"+string(d.Digest)+SignatureSuffix); err != nil {
			return "", err
		}
		c.signatures = [][]byte{signature}
	}
	return string(d.Digest), nil
}

// get returns the body of a response, at most so many bytes.
func get(ctx context.Context, from string, most int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "starling-host")
	response, err := client(r.URL.Host, false).Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New("the server says " + response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err == nil && int64(len(text)) > most {
		err = &Error{Ref: from, Reason: fmt.Sprintf("the file has more than %d bytes", most), Kind: Refused}
	}
	return text, err
}
