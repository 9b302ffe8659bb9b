// Verify checks receipts with libraries that know nothing of starling-host:
//
//	go run . seal.pem < dice.receipt
package main

import (
	"bufio"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/veraison/go-cose"
)

// key verifies DSSE signatures by one public key.
type key struct{ ed25519.PublicKey }

func (k key) Verify(_ context.Context, data, sig []byte) error {
	if !ed25519.Verify(k.PublicKey, data, sig) {
		return errors.New("wrong signature")
	}
	return nil
}
func (k key) KeyID() (string, error)   { return dsse.SHA256KeyID(k.PublicKey) }
func (k key) Public() crypto.PublicKey { return k.PublicKey }

type receipt struct {
	dsse.Envelope
	Leaf, COSEReceipt []byte
	TlogProof         string
}

// verify returns the statement of a receipt.
func verify(doc []byte, public ed25519.PublicKey) (statement []byte, err error) {
	var r receipt
	if err := json.Unmarshal(doc, &r); err != nil {
		return nil, err
	}
	verifier, err := dsse.NewEnvelopeVerifier(key{public})
	if err != nil {
		return nil, err
	}
	if _, err := verifier.Verify(context.Background(), &r.Envelope); err != nil {
		return nil, err
	}
	statement, err = r.DecodeB64Payload()
	if err == nil && r.COSEReceipt != nil {
		err = verifyCOSE(r, statement, public)
	}
	return statement, err
}

// verifyCOSE checks that the leaf is in the tree whose root the COSE receipt signs (RFC 9942).
func verifyCOSE(r receipt, statement []byte, public ed25519.PublicKey) error {
	digest := fmt.Sprintf("%x", sha256.Sum256(r.Leaf))
	if !strings.Contains(string(statement), `{"name":"leaf","digest":{"sha256":"`+digest+`"}}`) {
		return errors.New("the statement is about another leaf")
	}
	var m cose.Sign1Message
	if err := m.UnmarshalCBOR(r.COSEReceipt); err != nil {
		return err
	}
	proofs, _ := m.Headers.Unprotected[int64(396)].(map[any]any)
	list, _ := proofs[int64(-1)].([]any)
	if len(list) != 1 {
		return errors.New("the COSE receipt has not one inclusion proof")
	}
	size, index, path, err := inclusion(list[0])
	if err != nil {
		return err
	}
	root, err := proof.RootFromInclusionProof(rfc6962.DefaultHasher, index, size, rfc6962.DefaultHasher.HashLeaf(r.Leaf), path)
	if err != nil {
		return err
	}
	verifier, err := cose.NewVerifier(cose.AlgorithmEdDSA, public)
	if err != nil {
		return err
	}
	m.Payload = root
	return m.Verify(nil, verifier)
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		fmt.Fprintln(os.Stderr, os.Args[1], "has no public key in PEM: starling-host receipt --pem")
		os.Exit(2)
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	code := 0
	for lines.Scan() {
		statement, err := verify(lines.Bytes(), public.(ed25519.PublicKey))
		if err != nil {
			fmt.Println("refused:", err)
			code = 1
			continue
		}
		fmt.Println("verified:", base64.StdEncoding.EncodeToString(statement))
	}
	os.Exit(code)
}
