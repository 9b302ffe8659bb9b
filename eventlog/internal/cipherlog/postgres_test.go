package cipherlog_test

import (
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/pgtest"
)

func onPostgres(t testing.TB, dsn string) eventlog.EventLog {
	t.Helper()
	l, err := store.OpenServer(t.Context(), dsn, store.ServerOptions{AutoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return over(t, l, 1)
}

func TestSuiteOnPostgres(t *testing.T) {
	t.Parallel()
	logtest.Run(t, func(t testing.TB) eventlog.EventLog { return onPostgres(t, pgtest.Schema(t)) })
}

func TestPairsOnPostgres(t *testing.T) {
	t.Parallel()
	logtest.RunPair(t, func(t testing.TB) (a, b eventlog.EventLog) {
		dsn := pgtest.Schema(t)
		return onPostgres(t, dsn), onPostgres(t, dsn)
	})
}
