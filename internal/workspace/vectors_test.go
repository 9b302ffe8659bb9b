package workspace_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/workspace"
	"github.com/starling-host/starling/spec"
)

type folderLine struct {
	Name    string `json:"name"`
	Entries []struct {
		Name   string `json:"name"`
		Kind   string `json:"kind"`
		Size   uint64 `json:"size"`
		Digest string `json:"digest"`
	} `json:"entries"`
	CBOR   string `json:"cbor"`
	Digest string `json:"digest"`
}

type refusedLine struct {
	Name string `json:"name"`
	CBOR string `json:"cbor"`
}

// TestVectorsWorkspace compares the code with the examples of spec/workspace.md.
func TestVectorsWorkspace(t *testing.T) {
	lines, err := spec.Lines[folderLine]("workspace.jsonl")
	if err != nil || len(lines) < 5 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	text, err := os.ReadFile("../../spec/workspace.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := bytes.Cut(text, []byte("They have the same digest.\n"))
	example, _, _ = bytes.Cut(example, []byte("## "))
	inText := string(bytes.Join(bytes.Fields(example), nil))
	if !slices.ContainsFunc(lines, func(line folderLine) bool { return line.CBOR == inText }) {
		t.Errorf("the example in spec/workspace.md is not among the vectors: %s", inText)
	}
	kinds := map[string]workspace.Kind{"file": workspace.File, "folder": workspace.Folder, "link": workspace.Link}
	for _, line := range lines {
		entries := []workspace.Entry{}
		for _, e := range line.Entries {
			entries = append(entries, workspace.Entry{Name: e.Name, Kind: kinds[e.Kind], Size: e.Size, Digest: canon.Hash(mustHex(t, e.Digest))})
		}
		content := workspace.Content{Bytes: workspace.Encode(entries), Folder: true}
		if got := hex.EncodeToString(content.Bytes); got != line.CBOR || content.Digest().String() != line.Digest {
			t.Errorf("%s: %s, %s", line.Name, got, content.Digest())
		}
		if got, err := workspace.Decode(mustHex(t, line.CBOR)); err != nil || !reflect.DeepEqual(got, entries) {
			t.Errorf("%s: %v, %v", line.Name, got, err)
		}
	}
	refused, err := spec.Lines[refusedLine]("workspace-refused.jsonl")
	if err != nil || len(refused) < 15 {
		t.Fatalf("%d lines, %v", len(refused), err)
	}
	for _, line := range refused {
		if entries, err := workspace.Decode(mustHex(t, line.CBOR)); err == nil {
			t.Errorf("%s: it is read as %v", line.Name, entries)
		}
	}
}

func mustHex(t *testing.T, text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
