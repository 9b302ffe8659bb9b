package pglog

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// fenceSQL makes a new epoch of each run. A run without events gets a row that stands
// before its first one. The row's lock is also taken by whoever appends to the run: an
// append that has it first is committed before the fence, one that comes later sees the
// new epoch. Rows are locked in the order of the runs' names, so that nobody waits in a
// circle.
const fenceSQL = `INSERT INTO run (epoch, ` + runValues + `)
	SELECT 1, id, 0, 0, decode(repeat('00', 32), 'hex'), 0, 0, 0, 0, 0, 0, 0 FROM unnest($1::text[]) AS id GROUP BY id ORDER BY id
	ON CONFLICT (run_id) DO UPDATE SET epoch = run.epoch + 1 RETURNING epoch, ` + runValues

// Fenced implements [eventlog.Fencer].
func (l *Log) Fenced(runID string, epoch uint64) eventlog.EventLog {
	return &fencedLog{pending.NewWriter(l.runs, runID, epoch), others{l}}
}

// fencedLog is the log as the writer of one run sees it, in one epoch.
type fencedLog struct {
	pending.Writer
	others
}

// others has the methods of the log that the writer does not have. Those of both are
// the writer's, because the log's are embedded more deeply.
type others struct{ *Log }

// gateCount is how many gates there are.
const gateCount = 64

// gate returns the gate that appends to the run pass.
func gate(runID string) int32 {
	h := uint32(2166136261) // FNV-1a, which package hash/fnv has for those who can afford to allocate
	for i := range len(runID) {
		h = (h ^ uint32(runID[i])) * 16777619
	}
	return int32(h % gateCount)
}

// gates returns the gates of several runs, each once and in order.
func gates(runIDs iter.Seq[string]) []int32 {
	var open [gateCount]bool
	for id := range runIDs {
		open[gate(id)] = true
	}
	var all []int32
	for i, is := range open {
		if is {
			all = append(all, int32(i))
		}
	}
	return all
}

// lockGates keeps everybody from appending to the runs, until unlock.
//
// A serialisable transaction cannot change the row of a run that somebody has appended
// to since it began, and would never get to fence a run that is written all the time.
// So when that has happened, the next attempt begins behind closed gates. A gate is an
// advisory lock that the statement which appends takes shared; runs have few of them in
// common, so that a batch of a thousand runs holds no thousand locks.
//
// The session holds the locks, and no transaction, so that nothing but the end of the
// session frees the gates of a host that was cut off from the network or frozen with
// them closed. While it holds them, the server ends a session that asks for nothing for
// idleTime, and one whose host does not answer, by as much of that as it can do
// (idle_session_timeout: PostgreSQL 14, tcp_user_timeout: 12).
func lockGates(ctx context.Context, conn *pgxpool.Conn, runIDs []string) (unlock func(), err error) {
	unlock = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		const open = `SELECT pg_advisory_unlock_all();
			SELECT set_config(name, reset_val, false) FROM pg_settings WHERE name = 'idle_session_timeout'`
		if _, err := conn.Exec(ctx, open, pgx.QueryExecModeSimpleProtocol); err != nil {
			conn.Conn().Close(ctx) // which unlocks as well
		}
	}
	const attend = `SELECT set_config(s.name, v.value, false) FROM pg_settings s JOIN (VALUES
		('idle_session_timeout', $1), ('tcp_user_timeout', $1),
		('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '10'), ('tcp_keepalives_count', '2')
		) AS v(name, value) ON v.name = s.name`
	const lock = "SELECT pg_advisory_lock(1398033480, gate) FROM unnest($1::int[]) AS gates(gate)"
	_, err = conn.Exec(ctx, attend, fmt.Sprint(idleTime.Milliseconds()))
	if err == nil {
		_, err = conn.Exec(ctx, lock, gates(slices.Values(runIDs)))
	}
	if err != nil {
		unlock() // the session keeps those that it had got before the statement failed
		return nil, fmt.Errorf("pglog: lock runs: %w", orUnavailable(err))
	}
	return unlock, nil
}
