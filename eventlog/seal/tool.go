package seal

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/starling-host/starling/internal/lists"
)

// ToolStatement is the text of a signature of a tool: the owner of a key vouches for a module
// under a name (spec/seal.md, section 10).
type ToolStatement struct {
	Name   string   // such as registry.example.com/tools/dice
	Module [32]byte // BLAKE3-256 of the module
}

const toolFormat = "starling-tool/1"

// Text returns the signed text.
func (s ToolStatement) Text() string {
	return fmt.Sprintf("%s\n%s\nblake3:%x\n", toolFormat, s.Name, s.Module)
}

// Sign returns the statement as a signed note. Signatures of other keys in earlier, a note with
// the same text, are kept.
func (s ToolStatement) Sign(k *Key, earlier []byte) ([]byte, error) {
	if _, err := parseTool(s.Text()); err != nil {
		return nil, err
	}
	n := &note.Note{Text: s.Text()}
	if unverified := (*note.UnverifiedNoteError)(nil); len(earlier) <= MaxCheckpointBytes {
		if _, err := note.Open(earlier, note.VerifierList()); errors.As(err, &unverified) && unverified.Note.Text == n.Text {
			n.UnverifiedSigs = unverified.Note.UnverifiedSigs
		}
	}
	return note.Sign(n, signer{k})
}

// OpenTool reads a signed statement, and checks the signatures of these public keys. It returns
// the keys that have signed, of those given, and the names of the others. A wrong signature of a
// given key is an error.
func OpenTool(signed []byte, vkeys ...string) (s ToolStatement, by, others []string, err error) {
	if len(signed) > MaxCheckpointBytes {
		return s, nil, nil, fmt.Errorf("seal: a signature of %d bytes; at most %d are read", len(signed), MaxCheckpointBytes)
	}
	keys, err := parseVKeys(vkeys)
	if err != nil {
		return s, nil, nil, err
	}
	n, err := note.Open(signed, note.VerifierList(lists.Map(keys, func(v verifier) note.Verifier { return v })...))
	if unverified := (*note.UnverifiedNoteError)(nil); errors.As(err, &unverified) {
		n, err = unverified.Note, nil
	}
	if err != nil {
		return s, nil, nil, fmt.Errorf("seal: this is not the signature of a tool: %s", plain(err))
	}
	for _, sig := range n.Sigs {
		i := slices.IndexFunc(keys, func(v verifier) bool { return v.name == sig.Name && v.KeyHash() == sig.Hash })
		by = append(by, vkeys[i])
	}
	others = lists.Map(n.UnverifiedSigs, func(sig note.Signature) string { return fmt.Sprintf("%s+%08x", sig.Name, sig.Hash) })
	s, err = parseTool(n.Text)
	return s, by, others, err
}

// parseTool reads the one form of a statement.
func parseTool(text string) (s ToolStatement, err error) {
	lines := strings.Split(text, "\n")
	if len(lines) == 4 && lines[0] == toolFormat {
		digest, wrong := hex.DecodeString(strings.TrimPrefix(lines[2], "blake3:"))
		if wrong == nil && len(digest) == len(s.Module) {
			s = ToolStatement{Name: lines[1], Module: [32]byte(digest)}
		}
	}
	if s.Text() != text {
		return s, errors.New("seal: this is not the signature of a tool: want the lines " + toolFormat + ", the name and blake3:DIGEST")
	}
	return s, checkName(s.Name)
}
