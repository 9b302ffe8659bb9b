package seal

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/mod/sumdb/note"

	"github.com/starling-host/starling/internal/keyfile"
)

// The types of keys: of a log, and of a witness, whose signatures have a time.
const (
	algLog     = 1
	algWitness = 4
)

// Key is a private key: of a log, or of a witness. Its text is that of package note.
type Key struct {
	name    string
	private ed25519.PrivateKey
}

// NewKey makes a key.
func NewKey(name string) (*Key, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return &Key{name, private}, nil
}

// ParseKey reads the text of a key, as [Key.Text] returns it.
func ParseKey(text string) (*Key, error) {
	wrong := errors.New("seal: this is not a private key of a seal, PRIVATE+KEY+NAME+HASH+BASE64")
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "PRIVATE+KEY+")
	parts := strings.SplitN(rest, "+", 3)
	if !ok || len(parts) != 3 || checkName(parts[0]) != nil {
		return nil, wrong
	}
	b, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(b) != 1+ed25519.SeedSize || b[0] != algLog {
		return nil, wrong
	}
	k := &Key{parts[0], ed25519.NewKeyFromSeed(b[1:])}
	if parts[1] != fmt.Sprintf("%08x", keyHash(k.name, algLog, k.Public())) {
		return nil, fmt.Errorf("seal: the key of %q is damaged: its hash is not that of its name and bytes", k.name)
	}
	return k, nil
}

// ReadKey reads the file of a key. A file that others than its owner may read is refused.
func ReadKey(path string) (*Key, error) {
	const what = "seal key file"
	text, err := keyfile.Read(what, path)
	if err != nil {
		return nil, err
	}
	k, err := ParseKey(string(text))
	if err != nil {
		err = fmt.Errorf("%s %s: %s", what, path, plain(err))
	}
	return k, err
}

// CreateKey makes a key and writes it to a new file that only its owner may read.
func CreateKey(path, name string) (*Key, error) {
	k, err := NewKey(name)
	if err == nil {
		err = keyfile.Create(path, []byte(k.Text()+"\n"))
	}
	return k, err
}

// Text returns the key as text, which is secret.
func (k *Key) Text() string {
	return fmt.Sprintf("PRIVATE+KEY+%s+%08x+%s", k.name, keyHash(k.name, algLog, k.Public()),
		base64.StdEncoding.EncodeToString(append([]byte{algLog}, k.private.Seed()...)))
}

// Name returns the name of the key.
func (k *Key) Name() string { return k.name }

// Public returns the public half of the key.
func (k *Key) Public() ed25519.PublicKey { return k.private.Public().(ed25519.PublicKey) }

// PEM returns the public half as other programs read it.
func (k *Key) PEM() *pem.Block {
	der, _ := x509.MarshalPKIXPublicKey(k.Public()) // never fails for this type
	return &pem.Block{Type: "PUBLIC KEY", Bytes: der}
}

// Sign signs a message that cannot be mistaken for a checkpoint: a receipt (spec/receipt.md).
func (k *Key) Sign(message []byte) []byte { return ed25519.Sign(k.private, message) }

// PublicKey is the public key of a log or of a seal key.
type PublicKey struct {
	Name   string
	Public ed25519.PublicKey
	VKey   string
}

// Is reports whether the key is the seal key of a name, or that of a log of it.
func (k PublicKey) Is(name string) bool { return k.Name == name || isOriginOf(k.Name, name) }

// VKey returns the public key for the policies of verifiers (spec/seal.md, section 3).
func (k *Key) VKey() string { return vkey(k.name, algLog, k.Public()) }

// For returns the key under the name of a log that it signs.
func (k *Key) For(origin string) *Key { return &Key{origin, k.private} }

// NewOrigin draws the origin of a new log of the key.
func (k *Key) NewOrigin() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return k.name + "/" + hex.EncodeToString(b[:])
}

// signer signs as a log.
type signer struct{ *Key }

func (s signer) KeyHash() uint32                  { return keyHash(s.name, algLog, s.Public()) }
func (s signer) Sign(text []byte) ([]byte, error) { return ed25519.Sign(s.private, text), nil }

// cosigned returns the text that a witness signs for a checkpoint.
func cosigned(seconds uint64, text []byte) []byte {
	return append(fmt.Appendf(nil, "cosignature/v1\ntime %d\n", seconds), text...)
}

// verifier checks the signatures of a log or of a witness.
type verifier struct {
	name   string
	alg    byte
	public ed25519.PublicKey
}

func (v verifier) Name() string    { return v.name }
func (v verifier) KeyHash() uint32 { return keyHash(v.name, v.alg, v.public) }
func (v verifier) Verify(text, sig []byte) bool {
	if v.alg == algLog {
		return len(sig) == ed25519.SignatureSize && ed25519.Verify(v.public, text, sig)
	}
	if len(sig) != 8+ed25519.SignatureSize {
		return false
	}
	return ed25519.Verify(v.public, cosigned(binary.BigEndian.Uint64(sig), text), sig[8:])
}

var _ note.Verifier = verifier{}

// parseVKey reads a public key of one type.
func parseVKey(text string, alg byte) (verifier, error) {
	parts := strings.SplitN(text, "+", 3)
	if len(parts) != 3 || checkName(parts[0]) != nil {
		return verifier{}, fmt.Errorf("seal: %q is not a public key: want NAME+HASH+BASE64", text)
	}
	b, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(b) != 1+ed25519.PublicKeySize {
		return verifier{}, fmt.Errorf("seal: %q is not a public key: BASE64 is not of 33 bytes", text)
	}
	if b[0] != alg {
		kinds := map[byte]string{algLog: "of a log", algWitness: "of a witness"}
		return verifier{}, fmt.Errorf("seal: %q is a key %s; this place wants one %s", text,
			cmp.Or(kinds[b[0]], "of an unknown type, "+strconv.Itoa(int(b[0]))), kinds[alg])
	}
	v := verifier{parts[0], alg, ed25519.PublicKey(b[1:])}
	if parts[1] != fmt.Sprintf("%08x", v.KeyHash()) {
		return verifier{}, fmt.Errorf("seal: the public key %q is damaged: its hash is %08x", text, v.KeyHash())
	}
	return v, nil
}

// parseVKeys reads the public keys of logs.
func parseVKeys(texts []string) ([]verifier, error) {
	keys := make([]verifier, len(texts))
	for i, text := range texts {
		var err error
		if keys[i], err = parseVKey(text, algLog); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func vkey(name string, alg byte, public ed25519.PublicKey) string {
	return fmt.Sprintf("%s+%08x+%s", name, keyHash(name, alg, public), base64.StdEncoding.EncodeToString(append([]byte{alg}, public...)))
}

// keyHash names a key in a note (c2sp.org/signed-note).
func keyHash(name string, alg byte, public ed25519.PublicKey) uint32 {
	h := sha256.New()
	h.Write(append([]byte(name), '\n', alg))
	h.Write(public)
	return binary.BigEndian.Uint32(h.Sum(nil))
}

// checkName returns what keeps a text from being the name of a key.
func checkName(name string) error {
	bad := func(r rune) bool { return r == '+' || unicode.IsSpace(r) || !unicode.IsGraphic(r) }
	if name == "" || len(name) > 200 || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("seal: a key cannot be called %q: want a name without spaces and plus signs, such as example.com/logs", name)
	}
	return nil
}

// isOriginOf reports whether an origin was generated by a key with this name.
func isOriginOf(origin, name string) bool {
	digits, ok := strings.CutPrefix(origin, name+"/")
	return ok && len(digits) == 16 && strings.Trim(digits, "0123456789abcdef") == ""
}
