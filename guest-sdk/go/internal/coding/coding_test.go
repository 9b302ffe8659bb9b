package coding

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// pack compresses data with one of Go's writers.
func pack(t testing.TB, data []byte, open func(io.Writer) (io.WriteCloser, error)) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := open(&b)
	if err == nil {
		_, err = w.Write(data)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(w io.Writer) (io.WriteCloser, error)  { return gzip.NewWriter(w), nil }
func zlibbed(w io.Writer) (io.WriteCloser, error) { return zlib.NewWriter(w), nil }

func deflated(level int) func(io.Writer) (io.WriteCloser, error) {
	return func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, level) }
}

// texts are of all kinds: nothing, text, noise, one byte often, and longer than the window.
func texts() [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 100_000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	var words []byte
	for range 30_000 {
		words = append(words, []string{"der ", "Müller ", "mahlt ", "the corn\n", "0123456789 "}[random.IntN(5)]...)
	}
	return [][]byte{nil, []byte("a"), []byte("the page"), noise, bytes.Repeat([]byte("x"), 200_000), words, append(bytes.Clone(noise), noise...)}
}

func TestDecode(t *testing.T) {
	for i, text := range texts() {
		packed := map[string][]byte{"gzip": pack(t, text, zipped), "X-GZIP": pack(t, text, zipped), "deflate": pack(t, text, zlibbed), "identity": text, "": text}
		for coding, body := range packed {
			if got, err := Decode(coding, body); err != nil || !bytes.Equal(got, text) {
				t.Errorf("text %d in %q: %d bytes, %v", i, coding, len(got), err)
			}
		}
		for level := flate.HuffmanOnly; level <= flate.BestCompression; level++ {
			if got, err := Decode("deflate", pack(t, text, deflated(level))); err != nil || !bytes.Equal(got, text) {
				t.Errorf("text %d at level %d: %d bytes, %v", i, level, len(got), err)
			}
		}
	}
	named := pack(t, []byte("named"), func(w io.Writer) (io.WriteCloser, error) {
		z := gzip.NewWriter(w)
		z.Name, z.Comment, z.Extra = "a", "b", []byte("cd")
		return z, nil
	})
	if got, err := Decode("gzip", append(named, pack(t, []byte(" twice"), zipped)...)); err != nil || string(got) != "named twice" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	page := pack(t, []byte("the page"), zipped)
	damaged := bytes.Clone(page)
	damaged[len(damaged)-8]++
	bomb := pack(t, make([]byte, maxBody+1), zipped)
	for _, c := range []struct {
		name, coding string
		body         []byte
		want         string
	}{
		{"text", "gzip", []byte("not packed"), "corrupt or cut short"},
		{"half of it", "gzip", page[:len(page)/2], "corrupt or cut short"},
		{"no checksum", "gzip", page[:len(page)-8], "corrupt or cut short"},
		{"a wrong checksum", "gzip", damaged, "corrupt or cut short"},
		{"more than the file", "gzip", append(bytes.Clone(page), "more"...), "corrupt or cut short"},
		{"a bomb", "gzip", bomb, "larger than 32 MiB"},
		{"nothing", "deflate", nil, "corrupt or cut short"},
		{"brotli", "br", []byte("x"), `compressed with "br", and the SDK reads gzip and deflate`},
		{"two codings", "gzip, br", page, `compressed with "gzip, br"`},
	} {
		if _, err := Decode(c.coding, c.body); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// FuzzInflate compares with compress/flate.
func FuzzInflate(f *testing.F) {
	for _, text := range texts()[:3] {
		for level := flate.HuffmanOnly; level <= flate.BestCompression; level++ {
			f.Add(pack(f, text, deflated(level)))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		theirs := bytes.NewReader(in)
		want, wrong := io.ReadAll(io.LimitReader(flate.NewReader(theirs), maxBody+1))
		got, rest, err := inflate(nil, in)
		if len(want) > maxBody {
			wrong = ErrTooLarge
		}
		if (err == nil) != (wrong == nil) || err == nil && (!bytes.Equal(got, want) || len(rest) != theirs.Len()) {
			t.Errorf("%d bytes and %d left, %v\ntheirs %d and %d left, %v", len(got), len(rest), err, len(want), theirs.Len(), wrong)
		}
	})
}
