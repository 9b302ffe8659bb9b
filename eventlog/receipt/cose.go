package receipt

import (
	"bytes"
	"crypto/ed25519"
	"errors"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/seal"
)

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
