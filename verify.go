package starling

import (
	"context"
	"encoding/json"

	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
)

// ProofVerdict is the result of [VerifyProof].
type ProofVerdict struct {
	seal.Statement
	Checkpoint seal.Checkpoint
	Signatures []seal.Signature // of the checkpoint, by keys that the policy names
	Invalid    error            // why it proves nothing
}

// VerifyProof checks a proof that an event or a run is in a log, as [DB.Prove] returns it. A nil policy names no key.
func VerifyProof(ctx context.Context, doc []byte, policy *seal.Policy) (v ProofVerdict) {
	if v.Statement, v.Invalid = seal.ParseStatement(ctx, doc); v.Invalid == nil {
		v.Checkpoint, v.Signatures, v.Invalid = v.Check(policy)
	}
	return v
}

// ProofDocument is the verdict on a proof as JSON.
type ProofDocument struct {
	Verdict    string                   `json:"verdict"` // "valid" or "invalid"
	Error      string                   `json:"error,omitempty"`
	Trusted    bool                     `json:"trusted"`
	RunID      string                   `json:"run_id,omitempty"`
	Seq        uint64                   `json:"seq,omitempty"`
	Kind       string                   `json:"kind,omitempty"`
	Checkpoint *seal.CheckpointDocument `json:"checkpoint,omitempty"`
	Signatures []seal.Signature         `json:"signatures,omitempty"`
}

// Document returns the verdict as a document.
func (v ProofVerdict) Document() ProofDocument {
	doc := ProofDocument{Verdict: "valid", Trusted: len(v.Signatures) > 0, RunID: v.Leaf.RunID, Signatures: v.Signatures}
	if v.Invalid != nil {
		doc.Verdict, doc.Error = "invalid", PlainError(v.Invalid)
	} else {
		doc.Checkpoint = v.Checkpoint.Document()
	}
	if v.Event != nil {
		doc.Seq, doc.Kind = v.Event.Seq, v.Event.Kind.String()
	}
	return doc
}

// ReceiptVerdict is the result of [VerifyReceipts] for one receipt.
type ReceiptVerdict struct {
	receipt.Checked
	Invalid error // why it proves nothing

	payload json.RawMessage
}

// VerifyReceipts checks the receipts in a text, see [receipt.Split], and calls found with each verdict. A nil policy
// names no key. The first error of found ends it.
func VerifyReceipts(ctx context.Context, text []byte, policy *seal.Policy, found func(ReceiptVerdict) error) error {
	all, err := receipt.Split(ctx, text)
	if err != nil {
		return err
	}
	for _, one := range all {
		var v ReceiptVerdict
		r, err := receipt.Parse(ctx, one)
		if v.Invalid = err; err == nil {
			v.payload = r.Payload
			v.Checked, v.Invalid = r.Check(ctx, policy)
		}
		if err := found(v); err != nil {
			return err
		}
	}
	return nil
}

// ReceiptDocument is the verdict on a receipt as JSON.
type ReceiptDocument struct {
	Verdict    string                   `json:"verdict"` // "valid" or "invalid"
	Error      string                   `json:"error,omitempty"`
	Trusted    bool                     `json:"trusted"`
	SignedBy   string                   `json:"signed_by,omitempty"` // the trusted key
	Statement  json.RawMessage          `json:"statement,omitempty"`
	Checkpoint *seal.CheckpointDocument `json:"checkpoint,omitempty"` // that has the run
	Signatures []seal.Signature         `json:"signatures,omitempty"` // of the checkpoint
}

// Document returns the verdict as a document.
func (v ReceiptVerdict) Document() ReceiptDocument {
	if v.Invalid != nil {
		return ReceiptDocument{Verdict: "invalid", Error: PlainError(v.Invalid)}
	}
	doc := ReceiptDocument{Verdict: "valid", Trusted: v.SignedBy != "", SignedBy: v.SignedBy, Statement: v.payload, Signatures: v.Signatures}
	if v.Checkpoint != nil {
		doc.Checkpoint = v.Checkpoint.Document()
	}
	return doc
}
