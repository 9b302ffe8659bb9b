package rewrite

import (
	"context"
	"fmt"
	"testing"

	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
)

// TestOffsets finds every instruction of modules in their rewritten forms, and the way back.
func TestOffsets(t *testing.T) {
	modules := map[string][]byte{"Go": goGuest(t), "JavaScript": interp.JavaScript.Wasm()}
	for seed := range byte(50) {
		modules["generated "+fmt.Sprint(seed)] = wasmtest.Generate([]byte{seed}, wasmtest.Config{Imports: observedImports})
	}
	for name, module := range modules {
		for _, o := range []Options{{Offsets: true}, {Offsets: true, Profile: true, Explain: true}} {
			if r, err := Rewrite(work.Trusted(context.Background()), module, DefaultLimits(), o); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if t.Run(name, func(t *testing.T) { checkOffsets(t, module, r) }); t.Failed() {
				return
			}
		}
	}
}

func checkOffsets(t *testing.T, original []byte, r *Result) {
	from, to := decoded(t, original), decoded(t, r.Wasm)
	seen, copied := map[int]bool{}, 0
	for i := range from.Code {
		_, old, _ := from.Body(i, nil)
		_, now, _ := to.Body(i, nil)
		for now.Next() {
			at, ok := r.Offsets.Original(uint32(now.Instr.Pos))
			if !ok || int(at) < from.Code[i].Pos || int(at) >= from.Code[i].End {
				t.Fatalf("body %d: the original of %#x is %#x, %v", i, now.Instr.Pos, at, ok)
			}
			seen[int(at)] = true
		}
		for old.Next() {
			at, ok := r.Offsets.Rewritten(uint32(old.Instr.Pos))
			if !ok || int(at) < to.Code[i].Pos || int(at) >= to.Code[i].End {
				t.Fatalf("body %d: the rewritten %#x is %#x, %v", i, old.Instr.Pos, at, ok)
			}
			if back, ok := r.Offsets.Original(at); !ok || int(back) != old.Instr.Pos {
				t.Fatalf("body %d: %#x is %#x in the rewritten module, and that %#x in the original", i, old.Instr.Pos, at, back)
			}
			if !seen[old.Instr.Pos] {
				t.Fatalf("body %d: no instruction of the rewritten module belongs to %#x", i, old.Instr.Pos)
			}
			if string(original[old.Instr.Pos:old.End]) == string(r.Wasm[at:int(at)+old.End-old.Instr.Pos]) {
				copied++
			}
			delete(seen, old.Instr.Pos)
		}
	}
	if len(seen) > 0 || copied == 0 {
		t.Errorf("%d offsets that are no instructions, %d instructions copied", len(seen), copied)
	}
	if at, ok := r.Offsets.Original(uint32(to.Code[len(to.Code)-1].Pos)); ok {
		t.Errorf("a helper belongs to %#x of the original", at)
	}
}

func decoded(t *testing.T, module []byte) *wasm.Module {
	t.Helper()
	m, err := wasm.Decode(work.Trusted(context.Background()), module)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
