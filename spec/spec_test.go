package spec_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/starling-host/starling/spec"
)

// Every file of vectors is described and consists of objects with a name.
func TestVectorsAreDescribed(t *testing.T) {
	readme, err := spec.Vectors("README.md")
	if err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(os.DirFS("vectors"), "*.jsonl")
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		if !bytes.Contains(readme, []byte("`"+name+"`")) {
			t.Errorf("vectors/README.md does not mention %s", name)
		}
		lines, err := spec.Lines[map[string]any](name)
		if err != nil || len(lines) == 0 {
			t.Errorf("%s: %d lines, %v", name, len(lines), err)
		}
		for i, line := range lines {
			if _, ok := line["name"].(string); !ok {
				t.Errorf("%s line %d has no name", name, i+1)
			}
		}
	}
}

func TestLinesRefusesWhatTheCallerDoesNotKnow(t *testing.T) {
	type line struct {
		Name string `json:"name"`
	}
	if _, err := spec.Lines[line]("merkle.jsonl"); err == nil || !strings.Contains(err.Error(), "entry 1") {
		t.Errorf("%v, want an error about entry 1", err)
	}
	if _, err := spec.Lines[json.RawMessage]("nothing.jsonl"); err == nil {
		t.Error("a file that does not exist was read")
	}
}
