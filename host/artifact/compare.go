package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"

	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/internal/work"
)

// maxModule bounds a module, which the gate does as well.
const maxModule = registry.MaxModuleBytes

// newBudget returns the budget of one resolution: for all requests together, and for all that is
// kept of answers beside the module, in memory and in the cache.
func newBudget(ctx context.Context) *work.Budget {
	return work.New(ctx, work.Limits{Steps: 3 << 20, Bytes: 2 << 20})
}

// metered charges a budget for the answers of a server, whatever they are for.
type metered struct {
	http.RoundTripper
	b *work.Budget
}

// RoundTrip charges for a request as for 64 KiB.
func (m metered) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := m.b.Spend(1 << 10); err != nil {
		return nil, err
	}
	response, err := m.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = meteredBody{response.Body, m.b}
	}
	return response, err
}

type meteredBody struct {
	io.ReadCloser
	b *work.Budget
}

func (m meteredBody) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if spent := m.b.Spend(n/64 + 1); spent != nil {
		err = spent
	}
	return n, err
}

// fact is something that was asked for, with what came in its place. Reason says what is wrong, with
// %s for what came.
type fact struct{ asked, came, reason string }

// compare returns an error unless everything came that was asked for. Every resolution ends here: by
// a registry, a layout, an index, the cache, the lock file, a list of referrers, a signature, and
// what a registry has after a push. Nothing else in this package compares these. An empty asked
// asks for nothing.
func compare(ref, hint string, facts ...fact) error {
	for _, f := range facts {
		if f.asked != "" && f.asked != f.came {
			return &Error{Ref: ref, Reason: fmt.Sprintf(f.reason, f.came), Hint: hint, Kind: Refused}
		}
	}
	return nil
}

// compareBytes compares bytes with the descriptors that led to them, and with the digest in the name
// if that is one.
func compareBytes(ref string, text []byte, asked ...ocispec.Descriptor) error {
	var facts []fact
	for _, d := range asked {
		sum := fmt.Sprintf("sha256:%x", sha256.Sum256(text))
		facts = append(facts, fact{string(d.Digest), sum, "a digest mismatch: " + fmt.Sprintf("%.80q", d.Digest) + " was asked for, and there is %s in its place"})
		if d.MediaType != "" {
			facts = append(facts, fact{fmt.Sprint(d.Size), fmt.Sprint(len(text)), fmt.Sprintf("a size mismatch: %d bytes were asked for, and there are %%s", d.Size)})
		}
		if isDocument(d.MediaType) {
			facts = append(facts, fact{d.MediaType, typeOf(text, d.MediaType), "this is not a manifest of the type " + d.MediaType + " but %s"})
		}
	}
	return compare(ref, "", facts...)
}

func isDocument(mediaType string) bool { return isManifest(mediaType) || isIndex(mediaType) }
func isManifest(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageManifest || mediaType == typeDockerManifest
}
func isIndex(mediaType string) bool { return mediaType == typeIndex || mediaType == typeList }

// typeOf returns the media type that the bytes of a manifest or an index have: the one that they
// name, if they have its shape. One that names none has the claimed type, if that fits.
func typeOf(text []byte, claimed string) string {
	var m struct {
		MediaType                 string
		Manifests, Layers, Config json.RawMessage
	}
	err := json.Unmarshal(text, &m)
	index, manifest := m.Manifests != nil, m.Layers != nil || m.Config != nil
	fits := func(mediaType string) bool { return isIndex(mediaType) && index || isManifest(mediaType) && manifest }
	switch {
	case err != nil || index == manifest:
		return "none"
	case m.MediaType == "" && fits(claimed):
		return claimed
	case m.MediaType == "" && index:
		return typeIndex
	case m.MediaType == "":
		return ocispec.MediaTypeImageManifest
	case fits(m.MediaType):
		return m.MediaType
	}
	return "none"
}

// document returns a manifest or an index by its tag or digest. Its descriptor is made of its bytes,
// which are what was asked for, and not of what the place says.
func document(b *work.Budget, from place, ref string, asked ...ocispec.Descriptor) (d ocispec.Descriptor, text []byte, err error) {
	if digestForm().MatchString(ref) {
		asked = append(asked, ocispec.Descriptor{Digest: digest.Digest(ref)})
	}
	claimed, content, err := oras.Fetch(b.Context(), from, ref, oras.DefaultFetchOptions)
	if err != nil {
		return d, nil, err
	}
	defer content.Close()
	if text, err = b.ReadAll(io.LimitReader(content, maxModule)); err != nil {
		return d, nil, err
	}
	if !digestForm().MatchString(ref) || len(asked) == 0 {
		asked = append(asked, claimed)
	}
	if err := compareBytes(string(claimed.Digest), text, asked...); err != nil {
		forget(from, claimed)
		return d, nil, err
	}
	d = ocispec.Descriptor{MediaType: typeOf(text, claimed.MediaType), Digest: digest.FromBytes(text), Size: int64(len(text))}
	return d, text, compare(ref, "", fact{"true", fmt.Sprint(isDocument(d.MediaType)), "this is not a manifest of the type " + ocispec.MediaTypeImageManifest + "%.0s"})
}

// manifestOf returns the manifest with a tag or digest. An index leads to its first one for a platform.
func manifestOf(b *work.Budget, from place, ref string) (d ocispec.Descriptor, m ocispec.Manifest, text []byte, err error) {
	var asked []ocispec.Descriptor
	for {
		if d, text, err = document(b, from, ref, asked...); err != nil {
			return d, m, nil, err
		}
		if isManifest(d.MediaType) {
			return d, m, text, json.Unmarshal(text, &m)
		}
		var index ocispec.Index
		if err := json.Unmarshal(text, &index); err != nil {
			return d, m, nil, err
		}
		i := slices.IndexFunc(index.Manifests, func(m ocispec.Descriptor) bool { return m.Platform == nil || m.Platform.OS != "unknown" })
		if i < 0 || !digestForm().MatchString(string(index.Manifests[i].Digest)) {
			return d, m, nil, &Error{Ref: string(d.Digest), Reason: "the index has no manifest of a module", Kind: Refused}
		}
		ref, asked = string(index.Manifests[i].Digest), index.Manifests[i:i+1]
	}
}

// part returns the bytes that a descriptor is of. All but those of a module are held.
func part(b *work.Budget, from oras.ReadOnlyTarget, d ocispec.Descriptor) ([]byte, error) {
	if d.Size < 0 || d.Size > maxModule {
		return nil, &Error{Ref: fmt.Sprintf("%.80q", d.Digest), Reason: fmt.Sprintf("a part of %d bytes; at most %d are fetched", d.Size, int64(maxModule)), Kind: Refused}
	}
	if !digestForm().MatchString(string(d.Digest)) {
		return nil, &Error{Ref: fmt.Sprintf("%.80q", d.Digest), Reason: "this is not a digest of SHA-256", Kind: Refused}
	}
	if d.MediaType != typeModule && d.MediaType != typeOldLayer && !packed(d.MediaType) {
		if err := b.Hold(int(d.Size)); err != nil {
			return nil, err
		}
	}
	content, err := from.Fetch(b.Context(), d)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	text, err := io.ReadAll(io.LimitReader(content, d.Size+1))
	if err == nil {
		if err = compareBytes(string(d.Digest), text, d); err != nil {
			forget(from, d)
		}
	}
	return text, err
}

// forget removes a damaged part of the cache, so that it is fetched again. A folder of the user
// stays as it is.
func forget(from oras.ReadOnlyTarget, d ocispec.Descriptor) {
	if l, ok := from.(*layout); ok && l.own {
		_ = l.Delete(context.Background(), d)
	}
}
