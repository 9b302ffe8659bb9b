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
	"io"

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

// Split returns the receipts in a text: JSON documents one after the other, of one receipt each, or
// an array of them, also as the items of a page of the API.
func Split(ctx context.Context, doc []byte) (all []json.RawMessage, err error) {
	b := work.For(ctx, len(doc))
	decoder := json.NewDecoder(bytes.NewReader(doc))
	for {
		var one json.RawMessage
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return append(all, doc[decoder.InputOffset():]), nil // it has a clear error
		}
		if err := cmp.Or(b.Spend(1+len(one)/64), b.Hold(24*len(one))); err != nil { // an item may have two bytes
			return nil, err
		}
		var page struct{ Items []json.RawMessage }
		if json.Unmarshal(one, &page.Items) != nil && (json.Unmarshal(one, &page) != nil || page.Items == nil) {
			page.Items = []json.RawMessage{one}
		}
		all = append(all, page.Items...)
	}
}

// Labels and values of a COSE receipt (RFC 9052, RFC 9942).
const (
	coseTag       = 0xd2 // COSE_Sign1
	labelAlg      = 1
	algEdDSA      = -8
	labelKeyID    = 4
	labelVDS      = 395 // which kind of tree
	vdsRFC9162    = 1   // that of RFC 6962 and RFC 9162, with SHA-256
	labelProofs   = 396
	labelIncluded = -1
)

// cose returns a proof as a COSE receipt: a COSE_Sign1 whose detached payload is the root of the tree.
// It is nil for a tree of one leaf.
func cose(k *seal.Key, proof seal.Proof) ([]byte, error) {
	c, err := seal.ParseCheckpoint(proof.Checkpoint)
	if err != nil || len(proof.Hashes) == 0 {
		return nil, err
	}
	head, message := coseParts(k.Public(), proof, c)
	return canon.AppendBytes(head, k.Sign(message)), nil
}

// coseParts returns a COSE receipt without its signature, and what is signed.
func coseParts(public ed25519.PublicKey, proof seal.Proof, c seal.Checkpoint) (head, message []byte) {
	protected := canon.AppendInt(canon.AppendUint(canon.AppendMap(nil, 3), labelAlg), algEdDSA)
	protected = canon.AppendBytes(canon.AppendUint(protected, labelKeyID), []byte(KeyID(public)))
	protected = canon.AppendUint(canon.AppendUint(protected, labelVDS), vdsRFC9162)

	path := canon.AppendUint(canon.AppendUint(canon.AppendArray(nil, 3), uint64(c.Leaves)), uint64(proof.Index))
	path = canon.AppendArray(path, len(proof.Hashes))
	for _, h := range proof.Hashes {
		path = canon.AppendBytes(path, h[:])
	}
	head = canon.AppendBytes(canon.AppendArray([]byte{coseTag}, 4), protected)
	head = canon.AppendMap(canon.AppendUint(canon.AppendMap(head, 1), labelProofs), 1)
	head = canon.AppendBytes(canon.AppendArray(canon.AppendInt(head, labelIncluded), 1), path)
	head = canon.AppendNull(head) // the payload

	message = canon.AppendBytes(canon.AppendText(canon.AppendArray(nil, 4), "Signature1"), protected)
	message = canon.AppendBytes(canon.AppendBytes(message, nil), c.Root[:])
	return head, message
}

// checkCOSE checks a COSE receipt beside the proof that it is another form of. A receipt has one
// encoding, so it is compared and not read.
func checkCOSE(receipt []byte, policy *seal.Policy, proof seal.Proof, c seal.Checkpoint) error {
	if len(proof.Hashes) == 0 {
		return errors.New("receipt: a tree of one leaf has no COSE receipt")
	}
	keys := policy.Logs()
	for _, key := range keys {
		head, message := coseParts(key.Public, proof, c)
		sig, ok := bytes.CutPrefix(receipt, canon.AppendBytesHead(head, ed25519.SignatureSize))
		if ok && ed25519.Verify(key.Public, message, sig) {
			return nil
		}
	}
	if len(keys) == 0 {
		return nil // nobody is trusted
	}
	return errors.New("receipt: the COSE receipt is of another tree, or no key that you trust has signed it")
}
