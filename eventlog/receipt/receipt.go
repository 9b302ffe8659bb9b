package receipt

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/work"
)

// MaxBytes bounds the document of a receipt.
const MaxBytes = 1 << 20

// Receipt is a signed statement: a DSSE envelope (v1), which a reader of DSSE takes as it is. The last
// three members are those that a checkpoint adds.
type Receipt struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"` // a Statement
	Signatures  []Signature `json:"signatures"`

	Leaf  []byte `json:"leaf,omitempty"`        // of the run; its SHA-256 is a subject
	Proof string `json:"tlogProof,omitempty"`   // of the leaf, with the checkpoint (spec/seal.md, section 5)
	COSE  []byte `json:"coseReceipt,omitempty"` // of the same tree (RFC 9942)
}

// Signature is one of DSSE.
type Signature struct {
	KeyID string `json:"keyid"` // see [KeyID]
	Sig   []byte `json:"sig"`
}

// KeyID returns the name of a public key in a DSSE signature: its fingerprint as SSH writes it, which
// is what other readers of DSSE look for.
func KeyID(public ed25519.PublicKey) string {
	var b []byte
	for _, part := range [][]byte{[]byte("ssh-ed25519"), public} {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(part))), part...)
	}
	h := sha256.Sum256(b)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(h[:])
}

// signed is DSSE's pre-authentication encoding, which begins unlike a checkpoint and a COSE receipt:
// one key can sign all three.
func signed(payloadType string, payload []byte) []byte {
	return append(fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(payloadType), payloadType, len(payload)), payload...)
}

// Sign returns the receipt of the statement, under the name of the key.
func (s Statement) Sign(k *seal.Key) (*Receipt, error) {
	s.Predicate.Issuer = k.Name()
	payload, err := s.marshal()
	if err != nil {
		return nil, err
	}
	r := &Receipt{PayloadType: PayloadType, Payload: payload}
	r.Signatures = []Signature{{KeyID(k.Public()), k.Sign(signed(r.PayloadType, r.Payload))}}
	return r, nil
}

// marshal returns the one form of a statement.
func (s Statement) marshal() ([]byte, error) {
	return display.JSON(s, "")
}

// Attach adds the proof that the run is in a checkpoint, in both forms. Both are checked first. There
// is no COSE receipt of a checkpoint that this key has not signed, because it signs the same root, nor
// of a checkpoint of a single leaf: RFC 9942 has none without a path.
func (r *Receipt) Attach(k *seal.Key, leaf seal.Leaf, proof seal.Proof) error {
	if _, _, err := proof.Check(leaf, nil); err != nil {
		return fmt.Errorf("receipt: %w", err)
	}
	r.Leaf, r.Proof = leaf.Marshal(), string(proof.Text())
	own, err := seal.Trust(k.VKey())
	if err != nil {
		return err
	}
	if _, _, err := own.Check(proof.Checkpoint); errors.Is(err, seal.ErrUntrusted) {
		return nil
	} else if err != nil {
		return fmt.Errorf("receipt: %w", err)
	}
	r.COSE, err = cose(k, proof)
	return err
}

// Parse reads a receipt. It checks nothing but its form.
func Parse(ctx context.Context, doc []byte) (*Receipt, error) {
	return parse(work.For(ctx, len(doc)), doc)
}

func parse(b *work.Budget, doc []byte) (*Receipt, error) {
	if len(doc) > MaxBytes {
		return nil, fmt.Errorf("receipt: %d bytes; at most %d are read", len(doc), MaxBytes)
	}
	held := 16 * len(doc) // read and written, as values and as texts
	if err := cmp.Or(b.Spend(1+len(doc)/64), b.Hold(held)); err != nil {
		return nil, err
	}
	defer b.Release(held)
	given, err := canon.JSON(doc) // two readers must not see two receipts
	if err != nil {
		return nil, fmt.Errorf("receipt: this is not a receipt: %w", err)
	}
	r := &Receipt{}
	if json.Unmarshal(given, r) != nil {
		return nil, errors.New("receipt: this is not a receipt: want an object with payloadType, payload and signatures")
	}
	again, err := json.Marshal(r)
	if err == nil {
		again, err = canon.JSON(again)
	}
	switch {
	case err != nil || r.PayloadType != PayloadType:
		return nil, fmt.Errorf("receipt: this is not a receipt: payloadType is %.60q, not %q", r.PayloadType, PayloadType)
	case len(r.Signatures) == 0:
		return nil, errors.New("receipt: nobody has signed it")
	case !bytes.Equal(given, again):
		return nil, errors.New("receipt: a member does not belong here, or its base64 is not written in its one form")
	}
	return r, nil
}

// Checked is what a receipt shows.
type Checked struct {
	Statement  Statement
	SignedBy   string           // the trusted key, or empty if the policy trusts nobody
	Leaf       *seal.Leaf       // nil without a proof
	Checkpoint *seal.Checkpoint // likewise
	Signatures []seal.Signature // of the checkpoint
}

// Check checks a receipt under a policy: a key of a log that the policy names must have signed the
// statement and, if the receipt has a proof, the checkpoint, with the quorum. A policy that trusts
// nobody checks everything but the signatures.
func (r *Receipt) Check(ctx context.Context, policy *seal.Policy) (c Checked, err error) {
	return r.check(work.For(ctx, MaxBytes), policy)
}

func (r *Receipt) check(b *work.Budget, policy *seal.Policy) (c Checked, err error) {
	if err := b.Spend(1 + len(r.Payload)/64 + len(r.Signatures)*(1+len(policy.Logs()))); err != nil {
		return c, err
	}
	if err := json.Unmarshal(r.Payload, &c.Statement); err != nil {
		return c, fmt.Errorf("receipt: the payload is not a statement: %w", err)
	}
	if err := c.Statement.check(); err != nil {
		return c, err
	}
	if again, err := c.Statement.marshal(); err != nil || !bytes.Equal(again, r.Payload) { // nor has it other members
		return c, errors.New("receipt: the statement is not written in its one form")
	}
	if c.SignedBy, err = r.signer(policy, c.Statement.Predicate.Issuer); err != nil {
		return c, err
	}
	if r.Proof == "" && r.Leaf == nil && r.COSE == nil {
		return c, nil
	}
	return c, r.checkProof(policy, &c)
}

// signer returns the key that has signed, of those that the policy trusts.
func (r *Receipt) signer(policy *seal.Policy, issuer string) (string, error) {
	if policy.TrustsNobody() {
		return "", nil
	}
	message := signed(r.PayloadType, r.Payload)
	for _, key := range policy.Logs() {
		id := KeyID(key.Public)
		for _, s := range r.Signatures {
			switch {
			case s.KeyID != id:
			case !ed25519.Verify(key.Public, message, s.Sig):
				return "", fmt.Errorf("receipt: the signature of %s is wrong", key.Name)
			case !key.Is(issuer):
				return "", fmt.Errorf("receipt: the statement is issued by %q and signed by %q", issuer, key.Name)
			default:
				return key.VKey, nil
			}
		}
	}
	return "", errors.New("receipt: no key that you trust has signed it")
}

// checkProof checks what a checkpoint has added.
func (r *Receipt) checkProof(policy *seal.Policy, c *Checked) error {
	leaf, err := seal.ParseLeaf(r.Leaf)
	if err != nil {
		return fmt.Errorf("receipt: %w", err)
	}
	run, subjects := c.Statement.Predicate.Run, c.Statement.Subject
	if last := subjects[len(subjects)-1]; last.Digest["sha256"] != sha256Of(r.Leaf)["sha256"] || leaf.RunID != run.ID || leaf.Events != run.Events {
		return fmt.Errorf("receipt: the statement is about another leaf than that of run %q with %d events", leaf.RunID, leaf.Events)
	}
	proof, err := seal.ParseProof([]byte(r.Proof))
	if err != nil {
		return fmt.Errorf("receipt: %w", err)
	}
	checkpoint, signatures, err := proof.Check(leaf, policy)
	if err != nil {
		return fmt.Errorf("receipt: %w", err)
	}
	c.Leaf, c.Checkpoint, c.Signatures = &leaf, &checkpoint, signatures
	if r.COSE == nil {
		return nil
	}
	return checkCOSE(r.COSE, policy, proof, checkpoint)
}
