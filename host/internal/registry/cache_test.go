package registry

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
)

func TestCache(t *testing.T) {
	c := cache(t.TempDir())
	key, wasm := canon.Sum([]byte("key")), []byte("\x00asm")
	if _, ok := c.get(key); ok {
		t.Fatal("an empty cache has an entry")
	}
	c.put(key, wasm)
	if got, ok := c.get(key); !ok || string(got) != string(wasm) {
		t.Fatalf("got %q, %v", got, ok)
	}
	if _, ok := c.get(canon.Sum([]byte("other"))); ok {
		t.Error("another key has the entry")
	}
	for n := range len(canon.Hash{}) + len(wasm) {
		entry, err := os.ReadFile(c.path(key))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.path(canon.Sum([]byte("cut"))), entry[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok := c.get(canon.Sum([]byte("cut"))); ok {
			t.Errorf("an entry that was cut to %d bytes is accepted", n)
		}
	}
}

func TestCacheForgetsWhatIsUnused(t *testing.T) {
	c := cache(t.TempDir())
	key := func(i int) canon.Hash { return canon.Sum(fmt.Append(nil, i)) }
	begin := time.Now().Add(-time.Hour)
	for i := range maxEntries {
		c.put(key(i), []byte("\x00asm"))
		at := begin.Add(time.Duration(i) * time.Second)
		if err := os.Chtimes(c.path(key(i)), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := c.get(key(0)); !ok { // makes 1 the least recently used
		t.Fatal("the first entry is gone")
	}
	c.put(key(maxEntries), []byte("\x00asm"))
	left, err := filepath.Glob(filepath.Join(string(c), "*"))
	if err != nil || len(left) != maxEntries {
		t.Fatalf("%d entries, %v", len(left), err)
	}
	if _, ok := c.get(key(1)); ok {
		t.Error("the entry that was used longest ago is still there")
	}
	for _, i := range []int{0, 2, maxEntries} {
		if _, ok := c.get(key(i)); !ok {
			t.Errorf("entry %d is gone", i)
		}
	}
}
