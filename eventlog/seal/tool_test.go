package seal_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/seal"
)

func TestToolStatement(t *testing.T) {
	key, err := seal.NewKey("acme.example.com/tools")
	other, err2 := seal.NewKey("other.example.com")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	statement := seal.ToolStatement{Name: "registry.example.com/tools/dice", Module: [32]byte{1, 2, 3}}
	signed, err := statement.Sign(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	both, err := statement.Sign(other, signed)
	if err != nil {
		t.Fatal(err)
	}
	s, by, others, err := seal.OpenTool(both, key.VKey(), other.VKey())
	if err != nil || s != statement || len(by) != 2 || len(others) != 0 {
		t.Errorf("%+v, %v, %v, %v", s, by, others, err)
	}
	if s, by, others, err := seal.OpenTool(both, key.VKey()); err != nil || s != statement || len(by) != 1 || len(others) != 1 || !strings.HasPrefix(others[0], "other.example.com+") {
		t.Errorf("%+v, %v, %v, %v", s, by, others, err)
	}
	for i := range signed { // no byte can change: the text and the key's signature are bound, and the form is one
		forged := bytes.Clone(signed)
		forged[i] ^= 4
		if s, by, _, err := seal.OpenTool(forged, key.VKey()); err == nil && len(by) > 0 {
			t.Errorf("with another byte %d: %+v by %v", i, s, by)
		}
	}
	if _, err := (seal.ToolStatement{Name: "two words"}).Sign(key, nil); err == nil {
		t.Error("a name with a space was signed")
	}
	if _, err := (seal.ToolStatement{Name: "a\nb"}).Sign(key, nil); err == nil {
		t.Error("a name of two lines was signed")
	}
	// A checkpoint is no statement about a tool, though the key is the same.
	checkpoint, err := seal.Checkpoint{Origin: key.NewOrigin(), Leaves: 1}.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := seal.OpenTool(checkpoint, key.VKey()); err == nil {
		t.Error("a checkpoint is taken for the signature of a tool")
	}
	if _, err := seal.ParseCheckpoint(signed); err == nil {
		t.Error("the signature of a tool is taken for a checkpoint")
	}
}
