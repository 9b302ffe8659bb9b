package embedded_test

import (
	"path/filepath"
	"testing"

	"github.com/starling-host/starling/eventlog/sqlitelog"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/queue/embedded"
	"github.com/starling-host/starling/host/queue/queuetest"
)

func TestQueue(t *testing.T) {
	queuetest.Run(t, func(t testing.TB) queuetest.Database {
		path := filepath.Join(t.TempDir(), "log.db")
		return func(t testing.TB, cfg queue.Config) queuetest.Host { return open(t, path, cfg) }
	})
}

// open opens the log at path and the queue in it.
func open(t testing.TB, path string, cfg queue.Config) queuetest.Host {
	t.Helper()
	log, err := sqlitelog.Open(t.Context(), path, sqlitelog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	q, err := embedded.Open(t.Context(), log, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return queuetest.Host{Queue: q, Log: log}
}
