package cipherlog_test

import (
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/eventlog/pglog/pgtest"
)

func onPostgres(t testing.TB, dsn string) eventlog.EventLog {
	t.Helper()
	l, err := pglog.Open(t.Context(), dsn, pglog.Options{AutoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return over(t, l, 1)
}

func TestSuiteOnPostgres(t *testing.T) {
	logtest.Run(t, func(t testing.TB) eventlog.EventLog { return onPostgres(t, pgtest.Database(t)) })
}

func TestPairsOnPostgres(t *testing.T) {
	logtest.RunPair(t, func(t testing.TB) (a, b eventlog.EventLog) {
		dsn := pgtest.Database(t)
		return onPostgres(t, dsn), onPostgres(t, dsn)
	})
}
