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
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
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
	payload, err := display.JSON(s, "") // the one form of a statement
	if err != nil {
		return nil, err
	}
	r := &Receipt{PayloadType: PayloadType, Payload: payload}
	r.Signatures = []Signature{{KeyID(k.Public()), k.Sign(signed(r.PayloadType, r.Payload))}}
	return r, nil
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
	c, _, err := own.Check(proof.Checkpoint)
	switch {
	case errors.Is(err, seal.ErrUntrusted):
		return nil
	case err != nil:
		return fmt.Errorf("receipt: %w", err)
	case len(proof.Hashes) == 0:
		r.COSE = nil
	default:
		head, message := coseParts(k.Public(), proof, c)
		r.COSE = canon.AppendBytes(head, k.Sign(message))
	}
	return nil
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
	if again, err := display.JSON(c.Statement, ""); err != nil || !bytes.Equal(again, r.Payload) { // nor has it other members
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

// coseParts returns a proof as a COSE receipt without its signature, and what is signed: a COSE_Sign1
// whose detached payload is the root of the tree.
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

// Issuer signs receipts of the runs of a log. Key is required. It is safe for concurrent use.
type Issuer struct {
	Key *seal.Key

	// LeafOnly is as in [Options].
	LeafOnly bool

	// Commits also signs each call before its first effect, in the run itself, see [Issuer.Commit].
	Commits bool

	sums sync.Map // SHA-256 of modules, by canon.Hash
}

// ErrOpen is returned for a run that has not ended.
var ErrOpen = errors.New("receipt: the run has not ended, and has no receipts yet")

// Issue returns the receipts of the calls of a run, in the order in which the calls began. It signs
// what [seal.ReadRun] has validated: stored has the run as it is stored, and open decrypts it; open may
// be nil. If stored is sealed and has the run, the receipts have the proofs, and a run that is not the
// one that was sealed is [eventlog.ErrLogCorrupt].
func (i *Issuer) Issue(ctx context.Context, stored eventlog.EventLog, open seal.Opener, runID string) ([]*Receipt, error) {
	run, err := seal.ReadRun(ctx, stored, open, runID)
	if err != nil {
		return nil, err
	}
	var proof seal.Proof
	if db, ok := stored.(eventlog.Transactor); ok && run.Leaf.Events > 0 {
		switch proofs, err := seal.ProveRuns(ctx, db, run); {
		case err == nil:
			proof = proofs[0]
		case !errors.Is(err, seal.ErrNoLog) && !errors.Is(err, seal.ErrNotSealed):
			return nil, err
		}
	}
	return i.Sign(ctx, stored, run, proof)
}

// Sign is [Issuer.Issue] for a run that was read. Modules has its modules, if it is an
// [eventlog.ModuleReader], and proof is that of the run, or empty.
func (i *Issuer) Sign(ctx context.Context, modules eventlog.EventLog, run seal.Run, proof seal.Proof) ([]*Receipt, error) {
	if run.Leaf.Events == 0 {
		return nil, ErrOpen
	}
	var failed error
	statements, err := statementsOf(work.Trusted(ctx), run.Events, run.Leaf, Options{LeafOnly: i.LeafOnly, Module: i.module(ctx, modules, &failed)})
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	receipts := make([]*Receipt, len(statements))
	for n, s := range statements {
		if receipts[n], err = s.Sign(i.Key); err == nil && proof.Checkpoint != nil {
			err = receipts[n].Attach(i.Key, run.Leaf, proof)
		}
		if err != nil {
			return nil, err
		}
	}
	return receipts, nil
}

// module returns the SHA-256 of modules that a log has. Each is read once. A module that is there and
// was changed is an error in failed.
func (i *Issuer) module(ctx context.Context, log eventlog.EventLog, failed *error) func(canon.Hash) ([sha256.Size]byte, bool) {
	reader, ok := log.(eventlog.ModuleReader)
	if !ok {
		return nil
	}
	return func(digest canon.Hash) ([sha256.Size]byte, bool) {
		if known, ok := i.sums.Load(digest); ok {
			return known.([sha256.Size]byte), true
		}
		wasm, err := reader.Module(ctx, digest)
		if err != nil { // of a tenant, or pruned: its BLAKE3-256 is there
			if !errors.Is(err, eventlog.ErrModuleNotFound) {
				*failed = err
			}
			return [sha256.Size]byte{}, false
		}
		sum := sha256.Sum256(wasm)
		i.sums.Store(digest, sum)
		return sum, true
	}
}

// OfCall returns the receipt of a call, by its id, or of the first call for "". It is nil if there is
// none.
func OfCall(receipts []*Receipt, callID string) *Receipt {
	for _, r := range receipts {
		var s Statement
		if callID == "" || json.Unmarshal(r.Payload, &s) == nil && s.Predicate.Run.CallID == callID {
			return r
		}
	}
	return nil
}

// Committing returns Commit if the issuer commits to calls, and nil otherwise, also for a nil issuer.
func (i *Issuer) Committing() func(first, scheduling event.Event) ([]byte, error) {
	if i == nil || !i.Commits {
		return nil
	}
	return i.Commit
}

// Commit signs the statement of a call that is about to begin, given the first event of its run and
// the one that schedules it, see spec/receipt.md, section 5. It has the form of step.Config.Commit.
func (i *Issuer) Commit(first, scheduling event.Event) ([]byte, error) {
	started, err := first.AsRunStarted()
	if err != nil {
		return nil, err
	}
	call, err := scheduling.AsToolCallScheduled()
	if err != nil {
		return nil, err
	}
	of := &maker{work: work.Trusted(context.Background()), started: started}
	s, err := of.scheduled(scheduling, call)
	if err != nil {
		return nil, err
	}
	s.PredicateType, s.Subject = ScheduledType, []Subject{{SubjectInput, s.Predicate.Input}}
	s.Predicate.Run.PrevHash = blake3Of(scheduling.PrevHash)
	if s.Predicate.Policy != nil {
		s.Predicate.Policy.Decision = ""
	}
	r, err := s.Sign(i.Key)
	if err != nil {
		return nil, err
	}
	return json.Marshal(r)
}
