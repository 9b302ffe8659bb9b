package canon_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-host/starling/eventlog/canon"
)

// published are vectors of the BLAKE3 reference implementation
// (test_vectors.json): the input is the bytes 0, 1, 2 .. 250, 0, 1 and so on.
var published = []struct {
	length int
	hash   string
}{
	{0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
	{1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
	{1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
	{1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
	{1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
	{2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
	{2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
	{3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
	{3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3"},
	{4096, "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d2163229e969"},
	{4097, "9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d890d15c96a1c25b8aa0fb995"},
	{8192, "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63"},
	{8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b"},
	{16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4"},
	{31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
	{100000, "d93c23eedaf165a7e0be908ba86f1a7a520d568d2d13cde787c8580c5c72cc54"},
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

func TestPublishedVectors(t *testing.T) {
	for _, v := range published {
		if got := canon.Sum(pattern(v.length)).String(); got != v.hash {
			t.Errorf("%d bytes: %s, want %s", v.length, got, v.hash)
		}
	}
}

// lengths are all small ones, all around a multiple of the chunk, and some
// around the places where the method changes.
func lengths() []int {
	var all []int
	for n := range 4200 {
		all = append(all, n)
	}
	for n := 4096; n <= 70_000; n += 1024 {
		all = append(all, n-1, n, n+1, n+517)
	}
	for n := 1 << 17; n <= 1<<21; n *= 2 {
		all = append(all, n-1025, n-1, n, n+1, n+16385)
	}
	return all
}

func TestSumOfPieces(t *testing.T) {
	data := pattern(1<<21 + 1<<15)
	for _, n := range lengths() {
		pieces := canon.NewHash()
		pieces.Write(data[:n/3])
		pieces.Write(data[n/3 : n])
		if got, want := canon.Hash(pieces.Sum(nil)), canon.Sum(data[:n]); got != want {
			t.Errorf("%d bytes in pieces: got %s, want %s", n, got, want)
		}
	}
}

func TestSumOfParts(t *testing.T) {
	data := pattern(1 << 20)
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(0, 1000).Draw(t, "from")
		b := data[from : from+rapid.IntRange(0, 1<<20-1000).Draw(t, "length")]
		at := rapid.IntRange(0, len(b)).Draw(t, "at")
		if got, want := canon.Sum(b[:at/2], b[at/2:at], nil, b[at:]), canon.Sum(b); got != want {
			t.Fatalf("%d bytes in parts that end at %d and %d: %s, want %s", len(b), at/2, at, got, want)
		}
	})
}
