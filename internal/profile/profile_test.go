package profile_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"

	ours "github.com/starling-host/starling/internal/profile"
)

var names = map[uint32]string{1: "main", 2: "parse"}

// read gives a profile's samples as pprof reads them: the stack, outermost
// first, with calls, fuel and labels.
func read(t *testing.T, p *ours.Profile) map[string][2]int64 {
	t.Helper()
	var first, second bytes.Buffer
	if err := p.Write(&first); err != nil {
		t.Fatal(err)
	}
	if err := p.Write(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("written twice, the profile differs: %v", err)
	}
	parsed, err := profile.Parse(&first)
	if err != nil {
		t.Fatal(err)
	}
	if err := parsed.CheckValid(); err != nil {
		t.Error(err)
	}
	samples := map[string][2]int64{}
	for _, s := range parsed.Sample {
		stack := fmt.Sprint(s.Label["tool"])
		for i := range s.Location {
			stack += ";" + s.Location[len(s.Location)-1-i].Line[0].Function.Name
		}
		samples[stack] = [2]int64{s.Value[0], s.Value[1]}
	}
	return samples
}

func newProfile() *ours.Profile {
	return ours.New("tool.wasm", func(_ string, f uint32) string { return names[f] })
}

func TestFuelBelongsToTheFunctionThatRuns(t *testing.T) {
	p := newProfile()
	c := p.Call("dice")
	c.Enter(1, 0)
	c.Enter(2, 10)
	c.Leave(30)
	c.Enter(2, 35)
	c.EnterImport("starling:v1.now", 40)
	c.Leave(140)
	c.Leave(141)
	c.Leave(150)
	c.Enter(99, 150) // without a name
	c.Enter(1, 155)  // neither returns: a trap
	c.End(160)
	other := p.Call("other")
	other.Enter(1, 3) // what was spent before belongs to nobody
	other.End(7)
	want := map[string][2]int64{
		"[dice];main":                       {1, 10 + 5 + 9},
		"[dice];main;parse":                 {2, 20 + 5 + 1},
		"[dice];main;parse;starling:v1.now": {1, 100},
		"[dice];func[99]":                   {1, 5},
		"[dice];func[99];main":              {1, 5},
		"[other]":                           {0, 3},
		"[other];main":                      {1, 4},
	}
	if diff := cmp.Diff(want, read(t, p)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStacksAreBounded enters more functions than are kept, in one deep stack and
// in very many.
func TestStacksAreBounded(t *testing.T) {
	p := newProfile()
	c := p.Call("")
	const deep = 100_000
	for i := range uint64(deep) {
		c.Enter(1, i)
	}
	for i := range uint64(deep) {
		c.Leave(deep + i)
	}
	c.End(2 * deep)
	for a := range uint32(300) {
		c.Enter(a, 2*deep)
		for b := range uint32(300) {
			c.Enter(b, 2*deep)
			c.Leave(2*deep + 1)
			c.Leave(2*deep + 1) // one too many does no harm
			c.Enter(a, 2*deep+1)
		}
	}
	c.End(2*deep + 1)
	var total, beyond int64
	samples := read(t, p)
	for stack, values := range samples {
		total += values[1]
		if bytes.Contains([]byte(stack), []byte(ours.Beyond)) {
			beyond += values[0]
		}
	}
	if total != 2*deep+1 || beyond < deep-300 || len(samples) > 40_000 {
		t.Errorf("%d units in all, %d calls beyond, %d stacks", total, beyond, len(samples))
	}
}
