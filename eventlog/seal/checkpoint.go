package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// MaxCheckpointBytes bounds a signed checkpoint.
const MaxCheckpointBytes = 1 << 16

// maxSignatures bounds the signatures of a checkpoint.
const maxSignatures = 100

// mostLeaves is one more than the leaves of the largest log: hashes are numbered in 63 bits.
const mostLeaves = 1 << 62

// Checkpoint is the number of leaves in a log of runs, and the root of their tree.
type Checkpoint struct {
	Origin string // name of the log
	Leaves int64
	Root   Hash
}

// Text returns the signed text of the checkpoint (spec/seal.md, section 4).
func (c Checkpoint) Text() string { return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Leaves, c.Root) }

// Sign returns the checkpoint as a note that its log has signed.
func (c Checkpoint) Sign(k *Key) ([]byte, error) {
	return note.Sign(&note.Note{Text: c.Text()}, signer{k.For(c.Origin)})
}

// ParseCheckpoint reads a signed checkpoint. It checks no signature, see [Policy.Check].
func ParseCheckpoint(signed []byte) (Checkpoint, error) {
	if len(signed) > MaxCheckpointBytes {
		return Checkpoint{}, fmt.Errorf("seal: a checkpoint of %d bytes; at most %d are read", len(signed), MaxCheckpointBytes)
	}
	text, signatures, ok := bytes.Cut(signed, []byte("\n\n"))
	if !ok || !bytes.HasPrefix(signatures, []byte("— ")) || signatures[len(signatures)-1] != '\n' {
		return Checkpoint{}, errors.New("seal: this is not a checkpoint: want three lines, an empty one and signatures")
	}
	lines := strings.Split(strings.TrimSuffix(string(signatures), "\n"), "\n")
	if len(lines) > maxSignatures {
		return Checkpoint{}, fmt.Errorf("seal: a checkpoint of %d signatures; at most %d are read", len(lines), maxSignatures)
	}
	for _, line := range lines {
		if _, _, err := signatureOf(line); err != nil {
			return Checkpoint{}, err
		}
	}
	c, err := parseText(string(text) + "\n")
	if err == nil && !bytes.HasPrefix(signatures, []byte("— "+c.Origin+" ")) {
		err = fmt.Errorf("seal: the first signature is not that of the log %s", c.Origin)
	}
	return c, err
}

func parseText(text string) (Checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 4 {
		return Checkpoint{}, fmt.Errorf("seal: the text of a checkpoint has %d lines; want origin, number of leaves and root", len(lines)-1)
	}
	leaves, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || leaves < 0 || leaves >= mostLeaves {
		return Checkpoint{}, fmt.Errorf("seal: %.80q is not a number of leaves", lines[1])
	}
	root, err := base64.StdEncoding.DecodeString(lines[2])
	if err != nil || len(root) != len(Hash{}) {
		return Checkpoint{}, fmt.Errorf("seal: %.80q is not a root: want 32 bytes in base64", lines[2])
	}
	c := Checkpoint{Origin: lines[0], Leaves: leaves, Root: Hash(root)}
	if c.Leaves == 0 && c.Root != sha256.Sum256(nil) {
		return Checkpoint{}, errors.New("seal: the root is not that of a tree without leaves")
	}
	if err := checkName(c.Origin); err != nil {
		return Checkpoint{}, err
	}
	if c.Text() != text {
		return Checkpoint{}, errors.New("seal: the checkpoint is not written in its one form")
	}
	return c, nil
}

// Signature is a verified signature.
type Signature struct {
	Key     string    `json:"key"`               // its name
	VKey    string    `json:"vkey,omitempty"`    // of a log: the public key of that one log
	AnyLog  bool      `json:"any_log,omitempty"` // the verifier trusts the key for any log that it signs, and not for this one
	Witness bool      `json:"witness"`           // it is a cosignature
	Time    time.Time `json:"time,omitzero"`     // of a cosignature
}

// AddCosignatures returns the checkpoint with lines of cosignatures at its end. A line that exists is not added again; a line by the same key with
// another time replaces it. It refuses lines after which the checkpoint could not be read any more,
// and those in the name of the key that signed it: nobody else adds a signature of that key.
func AddCosignatures(signed, lines []byte) ([]byte, error) {
	if _, err := ParseCheckpoint(signed); err != nil {
		return nil, err
	}
	text, rest, _ := bytes.Cut(signed, []byte("\n\n"))
	all := strings.Split(strings.TrimSuffix(string(rest), "\n"), "\n")
	places := map[string]int{}
	for i, line := range all {
		key, err := signatureKey(line)
		if err != nil {
			return nil, err
		}
		places[key] = i
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(lines), "\n"), "\n") {
		key, err := signatureKey(line)
		if err != nil {
			return nil, err
		}
		at, known := places[key]
		switch {
		case known && at == 0 && all[0] != line:
			return nil, fmt.Errorf("seal: %.80q is in the name of the key that signed the checkpoint: a witness has a key of its own", line)
		case known && at == 0:
			continue
		case known:
			all[at] = ""
		}
		places[key] = len(all)
		all = append(all, line)
	}
	all = slices.DeleteFunc(all, func(line string) bool { return line == "" })
	more := fmt.Appendf(nil, "%s\n\n%s\n", text, strings.Join(all, "\n"))
	_, err := ParseCheckpoint(more)
	return more, err
}

// signatureKey returns the name and the hash of the key that made a line of signatures.
func signatureKey(line string) (string, error) {
	name, sig, err := signatureOf(line)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s+%x", name, sig[:4]), nil
}

// signatureOf returns the name in a line of signatures, and the key's hash with the signature.
func signatureOf(line string) (name string, sig []byte, err error) {
	rest, ok := strings.CutPrefix(line, "— ")
	name, text, ok2 := strings.Cut(rest, " ")
	sig, err = base64.StdEncoding.Strict().DecodeString(text)
	if !ok || !ok2 || err != nil || len(sig) < 5 || strings.ContainsAny(text, "\r\n") || checkName(name) != nil {
		return "", nil, fmt.Errorf("seal: %.80q is not a line of signature: want an em dash, a name and base64", line)
	}
	return name, sig, nil
}
