package artifact

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	"oras.land/oras-go/v2"

	"github.com/starling-host/starling/internal/work"
)

// What cosign writes with a key: at the tag sha256-HEX.sig of the repository a manifest, of which
// each layer is a document about the signed manifest, with a signature as its annotation.
const (
	typeCosigned     = "application/vnd.dev.cosign.simplesigning.v1+json"
	cosignAnnotation = "dev.cosignproject.cosign/signature"
)

// cosigned is a signature of cosign, unchecked.
type cosigned struct {
	payload []byte
	sig     []byte
}

// addCosigned reads the signatures of cosign, and copies them into the cache.
func (c *claim) addCosigned(b *work.Budget, from oras.GraphTarget, cache *layout, n name) {
	tag := strings.Replace(c.manifest, ":", "-", 1) + ".sig"
	kept := n.scheme + n.at + ":" + tag
	if from == oras.GraphTarget(cache) {
		tag = kept
	}
	d, m, text, err := manifestOf(b, from, tag)
	if err != nil {
		return
	}
	for _, l := range m.Layers {
		sig, err := base64.StdEncoding.DecodeString(l.Annotations[cosignAnnotation])
		if err != nil || l.MediaType != typeCosigned {
			continue
		}
		payload, err := part(b, from, l)
		if err == nil {
			c.cosign = append(c.cosign, cosigned{payload, sig})
			err = keep(b, from, cache, m, d, text, l, payload)
		}
		if err != nil {
			c.trouble = errors.Join(c.trouble, err)
			return
		}
	}
	if from != oras.GraphTarget(cache) && len(c.cosign) > 0 {
		_ = cache.Tag(b.Context(), d, kept)
	}
}

// verify checks the signature of a key over the manifest of a repository. There is no network: the
// certificates of signatures without a key are not checked.
func (c cosigned) verify(key *ecdsa.PublicKey, repository, manifest string) error {
	digest := sha256.Sum256(c.payload)
	if !ecdsa.VerifyASN1(key, digest[:], c.sig) {
		return errors.New("the signature of cosign is by another key")
	}
	var said struct {
		Critical struct {
			Identity struct {
				Reference string `json:"docker-reference"`
			} `json:"identity"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
			Type string `json:"type"`
		} `json:"critical"`
	}
	err := json.Unmarshal(c.payload, &said)
	switch {
	case err != nil || said.Critical.Type != "cosign container image signature":
		return errors.New("the signature of cosign is not of an artefact")
	case said.Critical.Identity.Reference == "":
		repository = "" // it names none
	}
	return compare(manifest, "", fact{manifest, said.Critical.Image.Digest, "the signature of cosign is of another artefact, %s"},
		fact{repository, said.Critical.Identity.Reference, "the signature of cosign is of the name %s"})
}
