package cipherlog_test

import (
	"path/filepath"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/cipherlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// keyOf returns a key of equal bytes.
func keyOf(t testing.TB, b byte) cipherlog.Key {
	t.Helper()
	secret := make([]byte, cipherlog.KeySize)
	for i := range secret {
		secret[i] = b
	}
	key, err := cipherlog.NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func over(t testing.TB, inner eventlog.EventLog, key byte) eventlog.EventLog {
	t.Helper()
	log, err := cipherlog.New(inner, keyOf(t, key), "")
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func onDisk(t testing.TB) *store.File {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "log.db"))
}

func openAt(t testing.TB, path string) *store.File {
	t.Helper()
	l, err := store.OpenFile(t.Context(), path, store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestSuiteInMemory(t *testing.T) {
	t.Parallel()
	logtest.Run(t, func(t testing.TB) eventlog.EventLog { return over(t, store.Memory(), 1) })
}

func TestSuiteOnDisk(t *testing.T) {
	t.Parallel()
	logtest.Run(t, func(t testing.TB) eventlog.EventLog { return over(t, onDisk(t), 1) })
}

// Two processes have the file.
func TestPairs(t *testing.T) {
	t.Parallel()
	logtest.RunPair(t, func(t testing.TB) (a, b eventlog.EventLog) {
		path := filepath.Join(t.TempDir(), "log.db")
		return over(t, openAt(t, path), 1), over(t, openAt(t, path), 1)
	})
}
