package embedded_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/eventlog/pglog/pgtest"
	"github.com/starling-host/starling/eventlog/sqlitelog"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/queue/embedded"
	"github.com/starling-host/starling/host/queue/queuetest"
)

func TestMain(m *testing.M) { queuetest.Main(m, connect) }

// connect opens the log at the address and the queue in it.
func connect(ctx context.Context, address string, cfg queue.Config) (queuetest.Host, error) {
	log, err := openLog(ctx, address)
	if err != nil {
		return queuetest.Host{}, err
	}
	q, err := embedded.Open(ctx, log.(eventlog.Transactor), cfg)
	return queuetest.Host{Queue: q, Log: log}, err
}

func openLog(ctx context.Context, address string) (eventlog.EventLog, error) {
	if strings.HasPrefix(address, "postgres://") {
		return pglog.Open(ctx, address, pglog.Options{AutoMigrate: true})
	}
	return sqlitelog.Open(ctx, address, sqlitelog.Options{})
}

// file is the address of a new SQLite file.
func file(t testing.TB) string { return filepath.Join(t.TempDir(), "log.db") }

func TestQueue(t *testing.T) { queuetest.Run(t, connect, file) }

// TestQueueOnPostgres holds the tables and the statements to the other dialect.
func TestQueueOnPostgres(t *testing.T) { queuetest.Run(t, connect, pgtest.Database) }

func TestKilledProcessesLoseNothing(t *testing.T) { queuetest.Kill(t, connect, file(t)) }
