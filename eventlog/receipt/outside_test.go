package receipt_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
)

// verifiers is the folder with programs on other people's libraries that check receipts.
const verifiers = "../../examples/receipts"

// outside are the programs; each reads a receipt a line, and answers with a line.
func outside(t *testing.T) map[string]*exec.Cmd {
	t.Helper()
	key := filepath.Join(t.TempDir(), "seal.pem")
	if err := os.WriteFile(key, pem.EncodeToMemory(fixedKey(t, "example.com/runs", 1).PEM()), 0o600); err != nil {
		t.Fatal(err)
	}
	programs := map[string]*exec.Cmd{}
	if _, err := os.Stat(filepath.Join(verifiers, "node_modules")); err != nil {
		t.Log("SKIPPED: @sigstore/verify and @auth0/cose are not installed: (cd examples/receipts && npm install --no-save --omit=optional)")
	} else {
		programs["node"] = exec.Command("node", "verify.mjs", key)
	}
	if err := exec.Command("python3", "-c", "import cryptography").Run(); err != nil {
		t.Log("SKIPPED: Python's cryptography is not installed: apt-get install python3-cryptography")
	} else {
		programs["python"] = exec.Command("python3", "verify.py", key)
	}
	if len(programs) == 0 {
		t.Skip("SKIPPED: no outside library")
	}
	return programs
}

// TestReceiptsOutside has libraries that never heard of this project verify receipts, refuse forged
// ones, and refuse mutants or read the same statement from them.
func TestReceiptsOutside(t *testing.T) {
	all := sealed(t)
	type attempt struct {
		doc       []byte
		statement any // that may be verified
		mustPass  bool
	}
	var attempts []attempt
	parse := func(payload []byte) (v any) {
		if err := json.Unmarshal(payload, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	r := rand.New(rand.NewPCG(3, 4))
	for _, v := range all {
		original, err := receipt.Parse(t.Context(), v.Receipt)
		if err != nil {
			t.Fatal(err)
		}
		said := parse(original.Payload)
		attempts = append(attempts, attempt{v.Receipt, said, true})
		fields := parse(original.Payload)
		each(fields, func(change func() (undo func())) {
			undo := change()
			forged := *original
			forged.Payload, _ = json.Marshal(fields)
			undo()
			attempts = append(attempts, attempt{document(t, &forged), said, false})
		})
		for range 2000 / len(all) {
			mutant := bytes.Clone(v.Receipt)
			if mutant[r.IntN(len(mutant))] ^= 1 << r.IntN(8); !bytes.ContainsAny(mutant, "\n\r") {
				attempts = append(attempts, attempt{mutant, said, false})
			}
		}
		for _, k := range []*seal.Key{fixedKey(t, "example.com/runs", 9)} {
			c, err := check(t, v)
			if err != nil {
				t.Fatal(err)
			}
			again, err := c.Statement.Sign(k)
			if err != nil {
				t.Fatal(err)
			}
			attempts = append(attempts, attempt{document(t, again), nil, false})
		}
	}
	var input bytes.Buffer
	for _, a := range attempts {
		input.Write(append(a.doc, '\n'))
	}
	for name, program := range outside(t) {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			program.Dir, program.Stdin, program.Stderr = verifiers, bytes.NewReader(input.Bytes()), &stderr
			out, _ := program.Output() // it fails since something is refused
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if len(lines) != len(attempts) {
				t.Fatalf("%d answers to %d receipts; the last is %.200s\n%s", len(lines), len(attempts), lines[len(lines)-1], stderr.Bytes())
			}
			refused := 0
			for i, line := range lines {
				encoded, verified := strings.CutPrefix(line, "verified: ")
				if !verified {
					refused++
					if attempts[i].mustPass {
						t.Errorf("refused: %s: %s", line, attempts[i].doc)
					}
					continue
				}
				statement, err := base64.StdEncoding.DecodeString(encoded)
				if err != nil || string(jsonOf(parse(statement))) != string(jsonOf(attempts[i].statement)) {
					t.Errorf("verified: %s\nof %s", statement, attempts[i].doc)
				}
			}
			t.Logf("%d receipts verified, %d forged and mutated ones refused", len(lines)-refused, refused)
		})
	}
}
