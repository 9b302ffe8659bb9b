package artifact

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/spec"
)

// Trust says which keys may sign which tools. [LoadTrust] reads it from a file
// (spec/trust.schema.json).
type Trust struct {
	file    string
	Tools   []TrustRule `yaml:"tools"`
	Digests []string    `yaml:"digests"` // BLAKE3 of modules that need no signature
}

// TrustRule lets keys sign the tools whose names match a pattern.
type TrustRule struct {
	Names  []string `yaml:"names"`
	Keys   []string `yaml:"keys"`   // vkeys of tool sign
	Cosign []string `yaml:"cosign"` // files of public keys

	cosign []*ecdsa.PublicKey
}

var trustSchema = sync.OnceValue(func() *config.Schema {
	return config.MustSchema(spec.TrustSchema(), config.Formats{
		"vkey": config.Format(func(key string) (*seal.Policy, error) { return seal.Trust(key) }),
		"name-pattern": config.Format(func(pattern string) (bool, error) {
			_, err := path.Match(pattern, "")
			return false, err
		}),
	})
})

// LoadTrust reads a trust file. The error is a [*config.Error] if its content is wrong.
func LoadTrust(file string) (*Trust, error) {
	data, err := config.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t := &Trust{file: file}
	root, err := trustSchema().Load(file, data, t)
	if err != nil {
		return nil, err
	}
	for i, at := range root.At("tools").Items() {
		for j, name := range t.Tools[i].Cosign {
			if !filepath.IsAbs(name) {
				name = filepath.Join(filepath.Dir(file), name)
			}
			key, err := readCosignKey(name)
			if err != nil {
				return nil, at.At("cosign").Items()[j].Errorf("want the file cosign.pub, a public key of ECDSA P-256 in PEM", "%v", err)
			}
			t.Tools[i].cosign = append(t.Tools[i].cosign, key)
		}
	}
	return t, nil
}

// TrustKeys lets these public keys sign any tool.
func TrustKeys(vkeys ...string) *Trust {
	return &Trust{file: "--key", Tools: []TrustRule{{Names: []string{""}, Keys: vkeys}}}
}

func readCosignKey(file string) (*ecdsa.PublicKey, error) {
	text, err := config.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New(file + " is not a key in PEM")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if public, ok := key.(*ecdsa.PublicKey); ok && public.Curve.Params().Name == "P-256" {
		return public, nil
	}
	return nil, fmt.Errorf("%s is not a public key of ECDSA P-256: %w", file, err)
}

// keysFor returns the keys that may sign a tool of this name.
func (t *Trust) keysFor(name string) (vkeys []string, cosign []*ecdsa.PublicKey) {
	for _, rule := range t.Tools {
		if slices.ContainsFunc(rule.Names, func(pattern string) bool {
			matched, err := path.Match(pattern, name)
			return err == nil && matched || pattern == ""
		}) {
			vkeys, cosign = append(vkeys, rule.Keys...), append(cosign, rule.cosign...)
		}
	}
	return vkeys, cosign
}

// claim is what there is to check about a module.
type claim struct {
	ref        string
	name       string // of a remote module, without its tag; signatures have the same
	file       string // the last word of the name, if it is a file or an upload
	manifest   string // the digest that cosign signs
	signatures [][]byte
	cosign     []cosigned
	trouble    error // signatures that could not be fetched
}

// check returns the name and the keys under which a module is signed, or refuses it. Nil accepts
// every module.
func (t *Trust) check(c claim, wasm []byte) (name string, by []string, err error) {
	if t == nil {
		return "", nil, nil
	}
	sum := canon.Sum(wasm)
	if slices.Contains(t.Digests, sum.String()) {
		return c.ref, []string{"its digest is listed in " + t.file}, nil
	}
	why := []string{"it is not signed"}
	if c.trouble != nil {
		why[0] = "its signatures cannot be fetched: " + reasonOf(c.trouble)
	} else if len(c.signatures)+len(c.cosign) > 0 {
		why = nil
	}
	for _, signed := range c.signatures {
		s, _, _, err := seal.OpenTool(signed)
		if err != nil {
			why = append(why, strings.TrimPrefix(err.Error(), "seal: "))
			continue
		}
		vkeys, _ := t.keysFor(s.Name)
		known, by, others, err := seal.OpenTool(signed, vkeys...)
		switch {
		case err != nil:
			why = append(why, "the signature is damaged or forged: "+strings.TrimPrefix(err.Error(), "seal: "))
		case c.compare(canon.Hash(known.Module).String(), sum.String(), s.Name, strings.Join(append(by, others...), ", "), &why):
		case len(by) > 0:
			return s.Name, by, nil
		default:
			why = append(why, fmt.Sprintf("it is signed by %s as %q, for which %s trusts %s", strings.Join(others, ", "), s.Name, t.file, cmp.Or(strings.Join(vkeys, ", "), "no key")))
		}
	}
	_, keys := t.keysFor(c.name)
	for _, signed := range c.cosign {
		if len(keys) == 0 {
			why = append(why, "it is signed with cosign, and "+t.file+" has no key of cosign for "+c.name)
		}
		for _, key := range keys {
			if err := signed.verify(key, c.name, c.manifest); err != nil {
				why = append(why, err.Error())
				continue
			}
			return c.name, []string{"cosign"}, nil
		}
	}
	slices.Sort(why)
	return "", nil, &Error{Ref: c.ref, Kind: Refused, Reason: "no signature that " + t.file + " requires: " + strings.Join(slices.Compact(why), "; "),
		Hint: "its author signs it with: starling-host tool sign " + c.ref + " --key FILE; if you have reviewed it, list it in the trust file: digests: [" + sum.String() + "]"}
}

// compare reports whether a signature of a module and a name is for others, and adds why.
func (c claim) compare(signed, module, name, keys string, why *[]string) bool {
	asked, came := c.name, name
	if c.name == "" {
		asked, came = c.file, path.Base(name)
	}
	err := compare(c.ref, "", fact{module, signed, "the signature by " + keys + " is of another module: this one is " + module + "%.0s"},
		fact{asked, came, "the signature by " + keys + " is of the name " + strings.ReplaceAll(fmt.Sprintf("%q", name), "%", "%%") + "%.0s"})
	if wrong, ok := errors.AsType[*Error](err); ok {
		*why = append(*why, wrong.Reason)
	}
	return err != nil
}

// SignatureSuffix follows the name of a file in the name of its signature.
const SignatureSuffix = ".sig"

// SignatureFile returns the file of the signature of a file or folder.
func SignatureFile(source string) string {
	return strings.TrimSuffix(source, ".wasm") + ".wasm" + SignatureSuffix
}

// add reads the signatures of a module, and copies them into the cache. What cannot be read is
// missing.
func (c *claim) add(b *work.Budget, from place, cache *layout, n name, of string) {
	c.manifest, c.signatures, c.cosign, c.trouble = of, nil, nil, nil
	if n.scheme == schemeHTTPS {
		d, err := from.Resolve(b.Context(), n.key()+"@"+of+SignatureSuffix)
		if err == nil {
			_ = c.addSignature(b, from, d)
		}
		return
	}
	var found []ocispec.Descriptor
	each := func(page []ocispec.Descriptor) error {
		for _, d := range page { // some registries name the type of the config
			if d.ArtifactType == "" || d.ArtifactType == typeSigned || d.ArtifactType == ocispec.MediaTypeEmptyJSON {
				if err := b.Hold(256); err != nil {
					return err
				}
				found = append(found, d)
			}
		}
		return b.Spend(len(page))
	}
	if l, ok := from.(*layout); ok {
		c.trouble = l.referrers(b, digest.Digest(of), each)
	} else {
		c.trouble = from.(*remote.Repository).Referrers(b.Context(), ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.Digest(of)}, "", each)
	}
	for _, listed := range found {
		c.addReferrer(b, from, cache, of, listed)
	}
	c.addCosigned(b, from, cache, n)
}

// addReferrer reads the signature in a manifest about another one.
func (c *claim) addReferrer(b *work.Budget, from place, cache *layout, of string, listed ocispec.Descriptor) {
	d, text, err := document(b, from, string(listed.Digest), listed)
	var m ocispec.Manifest
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil || m.ArtifactType != typeSigned || len(m.Layers) != 1 || m.Layers[0].MediaType != typeSignature || m.Subject == nil ||
		compare(string(d.Digest), "", fact{of, string(m.Subject.Digest), "it is about %s"}) != nil {
		if errors.Is(err, work.ErrExceeded) {
			c.trouble = err
		}
		return
	}
	if err := c.addSignature(b, from, m.Layers[0]); err != nil {
		c.trouble = errors.Join(c.trouble, err)
		return
	}
	c.trouble = errors.Join(c.trouble, keep(b, from, cache, m, d, text, m.Layers[0], c.signatures[len(c.signatures)-1]))
}

func (c *claim) addSignature(b *work.Budget, from place, d ocispec.Descriptor) error {
	text, err := part(b, from, d)
	if err == nil {
		c.signatures = append(c.signatures, text)
	}
	return err
}

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
func (c *claim) addCosigned(b *work.Budget, from place, cache *layout, n name) {
	tag := strings.Replace(c.manifest, ":", "-", 1) + ".sig"
	kept := n.scheme + n.at + ":" + tag
	if from == place(cache) {
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
	if from != place(cache) && len(c.cosign) > 0 {
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
