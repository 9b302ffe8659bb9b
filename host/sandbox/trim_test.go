//go:build unix

package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-host/starling/host/internal/disk"
)

// addCode puts so many bytes into the cache, as if they had been used some time ago.
func addCode(t *testing.T, c *cache, name string, bytes int64, ago time.Duration) (folder string) {
	t.Helper()
	folder = filepath.Join(c.root, "cost-table-1", name)
	must(t, os.MkdirAll(filepath.Join(folder, "wazero-v0"), 0o700))
	file := filepath.Join(folder, "wazero-v0", "code")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, bytes))
	at := time.Now().Add(-ago)
	must(t, os.Chtimes(folder, at, at))
	return folder
}

func TestTheCacheIsTrimmed(t *testing.T) {
	const day = 24 * time.Hour
	tests := []struct {
		name  string
		bytes int64
		ago   time.Duration
		goes  bool
	}{
		{"used-now", 400, 0, false},
		{"used-yesterday", 400, day, false},
		{"used-before", 400, 2 * day, true}, // too much beside these
		{"small", 1, 3 * day, true},
		{"old", 0, 31 * day, true},
		{"compiling-1", 5000, time.Minute, false},
		{"compiling-2", 0, 2 * time.Hour, true},
		{"preparing-1", 0, 2 * time.Hour, true},
		{"spoiled-1", 0, 2 * time.Hour, true},
		{"../prepared/used-now", 1, 0, false},
		{"../prepared/old", 0, 31 * day, true},
	}
	c := &cache{root: t.TempDir(), room: disk.Of, most: 1000}
	for _, tt := range tests {
		addCode(t, c, tt.name, tt.bytes, tt.ago)
	}
	old := addCode(t, &cache{root: c.root}, "../cost-table-0/old", 1, 40*day)
	c.trim(time.Now())
	for _, tt := range tests {
		if is := hasFiles(filepath.Join(c.root, "cost-table-1", tt.name)); is == tt.goes {
			t.Errorf("%s, used %v ago, is there: %v", tt.name, tt.ago, is)
		}
	}
	if hasFiles(old) {
		t.Error("what another cost table has left is there")
	}
}

func TestTheCacheStaysBelowItsBound(t *testing.T) {
	c := &cache{root: t.TempDir(), room: disk.Of, most: 1600}
	for i := range 100 {
		folder := filepath.Join(c.root, "cost-table-1", string(rune('A'+i)))
		must(t, c.restore(folder, func(dir string) error { return os.WriteFile(filepath.Join(dir, "code"), make([]byte, 90), 0o600) }))
		if !hasFiles(folder) {
			t.Fatalf("%d: what was just added is gone", i)
		}
		if bytes := size(c.root); bytes > c.most+c.most/16 {
			t.Fatalf("%d bytes, of at most %d", bytes, c.most)
		}
	}
}

// TestTheCacheLeavesMostOfTheDisk: the cache takes a quarter of the space that others
// leave on a small disk, also when others take more, and always keeps the file just added.
func TestTheCacheLeavesMostOfTheDisk(t *testing.T) {
	const disksize = 3000
	others := int64(0)
	c := &cache{root: t.TempDir(), most: 1 << 30}
	c.room = func(string) (disk.Room, error) {
		return disk.Room{Free: max(disksize-others-size(c.root), 0), Total: disksize}, nil
	}
	for i := range 100 {
		folder := filepath.Join(c.root, "cost-table-1", string(rune('A'+i)))
		must(t, c.restore(folder, func(dir string) error { return os.WriteFile(filepath.Join(dir, "code"), make([]byte, 90), 0o600) }))
		if !hasFiles(folder) {
			t.Fatalf("%d: what was just added is gone", i)
		}
		if bytes := size(c.root); bytes > 90 && bytes > (disksize-others)/4+90 {
			t.Fatalf("%d bytes, of %d that others leave", bytes, disksize-others)
		}
		others += 30
	}
	if bytes := size(c.root); bytes != 90 {
		t.Errorf("%d bytes on a disk that others have filled", bytes)
	}
}

func TestCodeThatIsUsedStays(t *testing.T) {
	c := &cache{root: t.TempDir(), room: disk.Of, most: 100}
	used := addCode(t, c, "used", 90, 29*24*time.Hour)
	if !c.use(used) {
		t.Fatal("it is not there")
	}
	addCode(t, c, "other", 90, 28*24*time.Hour)
	c.trim(time.Now())
	if !hasFiles(used) {
		t.Error("it was removed")
	}
	if c.use(filepath.Join(c.root, "cost-table-1", "other")) {
		t.Error("there is code that was used longer ago than that")
	}
}

func TestAModuleLoadsWhoseCodeWasTrimmed(t *testing.T) {
	e := keeping(t)
	for range 3 {
		m := load(t, e, tiny(output("executed")).Bytes(), Limits{})
		got, err := m.Call(t.Context(), Call{Input: []byte("x")}, &world{})
		if err != nil || string(got.Output) != "executed" {
			t.Errorf("%q, %v", got.Output, err)
		}
		m.Close(context.Background())
		e.cache.trim(time.Now().Add(2 * maxUnused))
		if code, err := files(e.cache.root); err != nil || len(code) != 0 {
			t.Errorf("files %v, %v", code, err)
		}
	}
}
