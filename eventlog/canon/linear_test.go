package canon

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// lookAheadJSON renders as this package did before Valid noted which maps have keys
// that are not text: it looks ahead over each map.
func lookAheadJSON(raw Raw, human bool) ([]byte, error) {
	odd := map[int]bool{}
	if Valid(raw) == nil {
		lookAhead(&reader{data: raw}, odd)
	}
	r := renderer{reader: reader{data: raw, oddMaps: odd}, human: human}
	err := r.item(0)
	return r.buf, err
}

// lookAhead fills odd by asking each map on the way down, in its own way.
func lookAhead(r *reader, odd map[int]bool) {
	at := r.off
	h, _ := r.head()
	switch h.major {
	case majorBytes, majorText:
		_, _ = r.bytes(h.arg)
	case majorArray:
		for range h.arg {
			lookAhead(r, odd)
		}
	case majorTag:
		lookAhead(r, odd)
	case majorMap:
		ahead := reader{data: r.data, off: r.off}
		for range h.arg {
			if ahead.data[ahead.off]>>5 != majorText {
				odd[at] = true
			}
			ahead.next()
			ahead.next()
		}
		for range 2 * h.arg {
			lookAhead(r, odd)
		}
	}
}

// treewiseDifference is Difference as it was: it cuts out the children of each level and
// descends into the first that differs.
func treewiseDifference(a, b Raw) (path string, inA, inB Raw) {
	for {
		step, x, y := firstChild(a, b)
		if step == "" {
			return strings.TrimPrefix(path, "."), a, b
		}
		path, a, b = path+step, x, y
		if a == nil || b == nil {
			return strings.TrimPrefix(path, "."), a, b
		}
	}
}

func firstChild(a, b Raw) (step string, x, y Raw) {
	ra, rb := reader{data: a}, reader{data: b}
	ha, _ := ra.head()
	hb, _ := rb.head()
	next := func(r *reader) Raw {
		if r.off == len(r.data) {
			return nil
		}
		return r.next()
	}
	if ha.major == majorArray && hb.major == majorArray {
		for i := range max(ha.arg, hb.arg) {
			if x, y = next(&ra), next(&rb); !bytes.Equal(x, y) {
				return "[" + string(appendDecimal(nil, i)) + "]", x, y
			}
		}
	}
	for ha.major == majorMap && hb.major == majorMap {
		ka, kb := next(&ra), next(&rb)
		x, y = next(&ra), next(&rb)
		switch {
		case ka == nil && kb == nil:
			return "", nil, nil
		case kb == nil, ka != nil && bytes.Compare(ka, kb) < 0:
			return memberStep(ka), x, nil
		case ka == nil, bytes.Compare(ka, kb) > 0:
			return memberStep(kb), nil, y
		case !bytes.Equal(x, y):
			return memberStep(ka), x, y
		}
	}
	return "", nil, nil
}

func appendDecimal(dst []byte, i uint64) []byte {
	if i >= 10 {
		dst = appendDecimal(dst, i/10)
	}
	return append(dst, byte('0'+i%10))
}

// randomItem appends a canonical item, whose maps have keys of all kinds.
func randomItem(rnd *rand.Rand, dst []byte, depth int) []byte {
	kind := rnd.IntN(9)
	if depth == 0 {
		kind = rnd.IntN(5)
	}
	n := rnd.IntN(4)
	switch kind {
	case 0:
		return AppendInt(dst, int64(rnd.IntN(9))-4)
	case 1:
		return AppendText(dst, "ab\u202e"[:n%3])
	case 2:
		return AppendBytes(dst, []byte("a\x00b")[:n])
	case 3:
		return AppendNull(dst)
	case 4:
		return appendFloat(dst, float64(n)/2)
	case 5:
		return randomItem(rnd, appendHead(dst, majorTag, 40), depth-1)
	case 6:
		dst = AppendArray(dst, n)
		for range n {
			dst = randomItem(rnd, dst, depth-1)
		}
		return dst
	}
	dst = AppendMap(dst, n)
	for i := range n {
		switch { // ascending: integers, byte strings, texts, arrays
		case kind == 7 && i < n-2:
			dst = AppendInt(dst, int64(i))
		case kind == 7 && i < n-1:
			dst = AppendText(dst, "k")
		case kind == 7:
			dst = AppendUint(AppendArray(dst, 1), uint64(i))
		default:
			dst = AppendText(dst, string(rune('a'+i)))
		}
		dst = randomItem(rnd, dst, depth-1)
	}
	return dst
}

// TestRenderInOnePass compares the result of one pass with the look-ahead at each level.
func TestRenderInOnePass(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	items, odd := 0, 0
	for range 20_000 {
		raw := Raw(randomItem(rnd, nil, 6))
		if err := Valid(raw); err != nil {
			t.Fatalf("%x: %v", raw, err)
		}
		items++
		for _, human := range []bool{true, false} {
			want, wantErr := lookAheadJSON(raw, human)
			got, gotErr := toJSON(raw, human)
			if (gotErr == nil) != (wantErr == nil) || gotErr != nil && gotErr.Error() != "canon: no JSON for this: "+wantErr.Error() {
				t.Fatalf("%x, human %v: %v, want %v", raw, human, gotErr, wantErr)
			}
			if gotErr == nil && !bytes.Equal(got, want) {
				t.Fatalf("%x, human %v: %s, want %s", raw, human, got, want)
			}
			if bytes.Contains(got, []byte("$map")) {
				odd++
			}
		}
	}
	if odd < items/100 {
		t.Fatalf("only %d of %d items have a map with keys that are not text", odd, items)
	}
}

// TestDifferenceInOnePass compares one pass with the descent level by level.
func TestDifferenceInOnePass(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		seed := rnd.Uint64()
		a := Raw(randomItem(rand.New(rand.NewPCG(seed, 0)), nil, 6))
		b := Raw(randomItem(rnd, nil, 6))
		if rnd.IntN(2) == 0 { // like a, except for one byte or a few
			b = bytes.Clone(a)
			b[rnd.IntN(len(b))] ^= byte(1 + rnd.IntN(3))
		}
		if bytes.Equal(a, b) || Valid(b) != nil {
			continue
		}
		path, inA, inB := Difference(a, b)
		wantPath, wantA, wantB := treewiseDifference(a, b)
		if path != wantPath || !bytes.Equal(inA, wantA) || !bytes.Equal(inB, wantB) || (inA == nil) != (wantA == nil) || (inB == nil) != (wantB == nil) {
			t.Fatalf("%x and %x: %q %x %x, want %q %x %x", a, b, path, inA, inB, wantPath, wantA, wantB)
		}
	}
}

// TestNestingCostsLinearTime holds one array inside of many maps against the array alone.
func TestNestingCostsLinearTime(t *testing.T) {
	list := "[" + strings.Repeat("1,", 200_000) + "1]"
	nested := strings.Repeat(`{"a":`, 60) + list + strings.Repeat("}", 60)
	flatItem, err := FromJSON([]byte(list))
	if err != nil {
		t.Fatal(err)
	}
	deepItem, err := FromJSON([]byte(nested))
	if err != nil {
		t.Fatal(err)
	}
	other := func(raw Raw) Raw { raw = bytes.Clone(raw); raw[len(raw)-1] = 2; return raw }
	for name, do := range map[string]func(Raw){
		"ToJSON":     func(raw Raw) { _, _ = ToJSON(raw) },
		"Render":     func(raw Raw) { _, _ = Render(raw) },
		"Difference": func(raw Raw) { Difference(raw, other(raw)) },
	} {
		flat, deep := fastest(do, flatItem), fastest(do, deepItem)
		if deep > 8*flat+time.Millisecond {
			t.Errorf("%s takes %v inside of 60 maps, and %v without", name, deep, flat)
		}
	}
}

func fastest(do func(Raw), raw Raw) time.Duration {
	best := time.Hour
	for range 5 {
		start := time.Now()
		do(raw)
		best = min(best, time.Since(start))
	}
	return best
}
