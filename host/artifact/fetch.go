package artifact

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
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
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/egress"
)

// fetchTimeout bounds a fetch and a push.
const fetchTimeout = 10 * time.Minute

// Media types of what is pulled. A layer of an image is a tar archive with the module as *.wasm.
const (
	typeConfig         = "application/vnd.wasm.config.v0+json"
	typeModule         = "application/wasm"
	typeImage          = "application/vnd.oci.image.layer.v1.tar"
	typeDocker         = "application/vnd.docker.image.rootfs.diff.tar.gzip"
	typeIndex          = ocispec.MediaTypeImageIndex
	typeList           = "application/vnd.docker.distribution.manifest.list.v2+json"
	typeDockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	typeOldLayer       = "application/vnd.wasm.content.layer.v1+wasm"
)

// place is where modules are kept: a registry, or the folder of a layout.
type place interface {
	oras.Target
	registry.TagLister
}

// open returns the registry or the layout folder of a name. To write makes a missing folder.
func (f Finder) open(b *work.Budget, n name, write bool) (place, error) {
	if n.scheme == schemeLayout {
		if _, err := os.Stat(n.at); err != nil && !write {
			return nil, &Error{Ref: n.ref, Reason: "no folder " + n.at}
		}
		return openLayout(n.at, write, false)
	}
	repo, err := remote.NewRepository(n.at)
	if err != nil {
		return nil, err
	}
	host := repo.Reference.Host()
	repo.PlainHTTP = f.PlainHTTP || loopback(host)
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("the credentials of docker cannot be read: %w", err)
	}
	repo.Client = &auth.Client{Client: client(b, host, repo.PlainHTTP), Credential: credentials.Credential(store), Cache: auth.NewCache(), ClientID: "starling-host",
		Header: http.Header{"User-Agent": {"starling-host"}}}
	return repo, nil
}

// fetcher has the connections to registries and other servers of modules.
var fetcher = sync.OnceValue(func() *egress.Fetcher { return egress.NewFetcher(nil, time.Minute) })

// client returns an HTTP client for a host that the user has named. See [egress.Origin] for where
// redirects and the addresses in answers may lead.
func client(b *work.Budget, host string, plain bool) *http.Client {
	origin := "https://" + host
	if plain {
		origin = "http://" + host
	}
	return &http.Client{Transport: retry.NewTransport(metered{fetcher().Origin(origin), b}), CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if len(via) > 5 {
			return errors.New("too many redirects")
		}
		return nil
	}}
}

// copy brings a module and its signatures from a registry or a folder into the cache. It returns
// the digest of the manifest.
func (f Finder) copy(b *work.Budget, cache *layout, n name, want string, how use, c *claim) (string, error) {
	from, err := f.open(b, n, false)
	if err != nil {
		return "", err
	}
	ask := n.digest
	if ask == "" && how == pinned {
		ask = want
	}
	ask = cmp.Or(ask, n.tag)
	d, m, text, err := manifestOf(b, from, ask)
	if err != nil {
		return "", err
	}
	layer, err := layerOf(m)
	if err != nil {
		return "", err
	}
	module, err := part(b, from, layer)
	if err != nil {
		return "", err
	}
	if err := keep(b, from, cache, m, d, text, layer, module); err != nil {
		return "", err
	}
	if err := cache.Tag(b.Context(), d, n.key()); err != nil {
		return "", err
	}
	c.add(b, from, cache, n, string(d.Digest))
	return string(d.Digest), nil
}

// keep puts a manifest with its config and one layer into the cache, the manifest last.
func keep(b *work.Budget, from oras.ReadOnlyTarget, cache *layout, m ocispec.Manifest, d ocispec.Descriptor, text []byte, layer ocispec.Descriptor, content []byte) error {
	if from == oras.ReadOnlyTarget(cache) {
		return nil
	}
	config, err := part(b, from, m.Config)
	if err != nil {
		return err
	}
	ctx := b.Context()
	return cmp.Or(cache.Push(ctx, m.Config, bytes.NewReader(config)), cache.Push(ctx, layer, bytes.NewReader(content)), cache.Push(ctx, d, bytes.NewReader(text)))
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
	case len(found) == 0 && len(m.Layers) > 0 && packed(m.Layers[len(m.Layers)-1].MediaType):
		return m.Layers[len(m.Layers)-1], nil
	}
	return ocispec.Descriptor{}, &Error{Ref: "manifest", Reason: fmt.Sprintf("it has %d layers of the type %s, and needs one", len(found), typeModule), Kind: Refused}
}

// packed reports whether a layer is one of an image.
func packed(mediaType string) bool {
	return mediaType == typeImage || mediaType == typeImage+"+gzip" || mediaType == typeDocker
}

// unpack returns the module in an archive: its only file *.wasm. No file is written.
func unpack(b *work.Budget, layer []byte) (wasm []byte, err error) {
	var r io.Reader = bytes.NewReader(layer)
	if bytes.HasPrefix(layer, []byte{0x1f, 0x8b}) {
		if r, err = gzip.NewReader(r); err != nil {
			return nil, err
		}
	}
	files := tar.NewReader(meteredBody{io.NopCloser(r), b})
	for {
		h, err := files.Next()
		switch {
		case errors.Is(err, io.EOF) && wasm != nil:
			return wasm, nil
		case errors.Is(err, work.ErrExceeded):
			return nil, err
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
func (f Finder) download(b *work.Budget, cache *layout, n name, how use, c *claim) (string, error) {
	if n.digest == "" && how == pinned {
		return "", &Error{Ref: n.ref, Reason: "a URL needs the digest of the file, " + n.at + "@sha256:DIGEST", Hint: "fetch the file and print its digest: starling-host tool pull " + n.at}
	}
	ctx := b.Context()
	text, err := get(b, n.at, maxModule)
	if err != nil {
		return "", err
	}
	d := content.NewDescriptorFromBytes(typeModule, text)
	if err := compare(n.ref, "compare them before you change the digest: starling-host tool diff "+n.ref+" "+n.pinned(string(d.Digest)), fact{n.digest, string(d.Digest), "the file is now %s"}); err != nil {
		return "", err
	}
	if err := cache.Push(ctx, d, bytes.NewReader(text)); err != nil {
		return "", err
	}
	if err := cache.Tag(ctx, d, n.key()+"@"+string(d.Digest)); err != nil {
		return "", err
	}
	if signature, err := get(b, n.at+SignatureSuffix, config.MaxBytes); err == nil && b.Hold(len(signature)) == nil {
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
func get(b *work.Budget, from string, most int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "starling-host")
	response, err := client(b, r.URL.Host, false).Do(r)
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
