package artifact

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/runtime/config"
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
	digest := canon.Sum(wasm)
	if slices.Contains(t.Digests, digest.String()) {
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
		case known.Module != digest:
			why = append(why, fmt.Sprintf("the signature by %s is of another module: this one is %s", strings.Join(append(by, others...), ", "), digest))
		case c.name != "" && s.Name != c.name, c.name == "" && path.Base(s.Name) != c.file:
			why = append(why, fmt.Sprintf("the signature by %s is of the name %q", strings.Join(append(by, others...), ", "), s.Name))
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
		Hint: "its author signs it with: starling-host tool sign " + c.ref + " --key FILE; if you have reviewed it, list it in the trust file: digests: [" + digest.String() + "]"}
}

// SignatureSuffix follows the name of a file in the name of its signature.
const SignatureSuffix = ".sig"

// SignatureFile returns the file of the signature of a file or folder.
func SignatureFile(source string) string {
	return strings.TrimSuffix(source, ".wasm") + ".wasm" + SignatureSuffix
}

// add reads the signatures of a module, and copies them into the cache. What cannot be read is
// missing.
func (c *claim) add(ctx context.Context, from oras.GraphTarget, cache *layout, n name, digest string) {
	c.manifest, c.signatures, c.cosign, c.trouble = digest, nil, nil, nil
	if n.scheme == schemeHTTPS {
		if d, err := from.Resolve(ctx, n.key()+"@"+digest+SignatureSuffix); err == nil {
			c.addSignature(ctx, from, d)
		}
		return
	}
	d, err := from.Resolve(ctx, digest)
	if err != nil {
		c.trouble = err
		return
	}
	found, err := from.Predecessors(ctx, d)
	c.trouble = err
	found = slices.DeleteFunc(found, func(d ocispec.Descriptor) bool { // some registries name the type of the config
		return d.ArtifactType != "" && d.ArtifactType != typeSigned && d.ArtifactType != ocispec.MediaTypeEmptyJSON
	})
	for _, d := range found[:min(len(found), maxSigned)] {
		m, err := manifestOf(ctx, from, d)
		if err != nil || m.ArtifactType != typeSigned || len(m.Layers) != 1 || m.Layers[0].MediaType != typeSignature {
			continue
		}
		c.addSignature(ctx, from, m.Layers[0])
		c.trouble = errors.Join(c.trouble, graph(ctx, from, cache, d, maxManifest, m.Config, m.Layers[0]))
	}
	c.addCosigned(ctx, from, cache, n)
}

func (c *claim) addSignature(ctx context.Context, from oras.GraphTarget, d ocispec.Descriptor) {
	if text, err := blob(ctx, from, d, maxSignature); err == nil {
		c.signatures = append(c.signatures, text)
	}
}
