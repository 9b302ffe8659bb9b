package tenant

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"strings"
)

var errSealed = errors.New("tenant: what is stored does not open: it was changed, or belongs elsewhere")

// seal encrypts text with AES-256-GCM under a random nonce, which stands before
// the result. It opens only with the same key and the same binding: what it is
// and where it belongs.
func seal(key, text []byte, binding ...string) ([]byte, error) {
	a, err := aead(key)
	if err != nil {
		return nil, err
	}
	return a.Seal(nil, nil, text, bind(binding)), nil
}

// unseal is the inverse of seal.
func unseal(key, sealed []byte, binding ...string) ([]byte, error) {
	a, err := aead(key)
	if err != nil {
		return nil, err
	}
	text, err := a.Open(nil, nil, sealed, bind(binding))
	if err != nil {
		return nil, errSealed
	}
	return text, nil
}

func aead(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("tenant: %w", err)
	}
	a, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("tenant: %w", err)
	}
	return a, nil
}

// bind joins parts so that no two lists of parts give the same bytes: each part is
// quoted.
func bind(parts []string) []byte {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "%q\n", p)
	}
	return []byte(b.String())
}
