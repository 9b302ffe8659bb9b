//go:build amd64 || arm64

package sqlitelog

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// pieces counts the writes of SQLite that were cut short.
var pieces atomic.Int64

// pwriteInPieces is a pwrite(2) that writes only a part of its buffer, as it may:
// when a signal comes, or on a network file system.
func pwriteInPieces(tls *libc.TLS, fd int32, buf uintptr, n uint64, off int64) int64 {
	if n > 1 && rand.IntN(4) > 0 {
		n = 1 + rand.Uint64N(n-1)
		pieces.Add(1)
	}
	return libc.Xpwrite(tls, fd, buf, n, off)
}

// writeInPieces is writeRuns with such a pwrite, which SQLite lets be replaced.
func writeInPieces(args ...string) error {
	tls := libc.NewTLS()
	defer tls.Close()
	name, err := libc.CString("pwrite")
	if err != nil {
		return err
	}
	defer libc.Xfree(tls, name)
	vfs := sqlite3.Xsqlite3_vfs_find(tls, 0)
	replacement := pwriteInPieces
	set := (*(**sqlite3.Tsqlite3_vfs)(unsafe.Pointer(&vfs))).FxSetSystemCall
	replace := *(*func(*libc.TLS, uintptr, uintptr, uintptr) int32)(unsafe.Pointer(&struct{ uintptr }{set}))
	if rc := replace(tls, vfs, name, *(*uintptr)(unsafe.Pointer(&replacement))); rc != sqlite3.SQLITE_OK {
		return fmt.Errorf("SQLite does not let pwrite be replaced: %d", rc)
	}
	err = writeRuns(args...)
	fmt.Println("pieces", pieces.Load())
	return err
}

// TestWritesInPiecesLoseNothing: the rest of a short write is written next.
func TestWritesInPiecesLoseNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log.db")
	out, err := child(t, "pieces", path, "p").Output()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if _, err := fmt.Sscanf(strings.TrimSpace(string(out)), "pieces %d", &n); err != nil || n < 100 {
		t.Fatalf("%q: %v, so nothing is proved", out, err)
	}
	l := openAt(t, path, Options{})
	acked := map[string]uint64{}
	for i := range childRuns {
		acked[fmt.Sprintf("p/%d", i)] = childEffects + 4
	}
	checkAcknowledged(t, l, acked)
	if runs, _ := readAll(t, l); len(runs) != childRuns {
		t.Errorf("%d runs, want %d", len(runs), childRuns)
	}
	t.Logf("%d writes were cut short", n)
}
