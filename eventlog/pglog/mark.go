package pglog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/starling-host/starling/eventlog/event"
)

// marks are how it is found out whether a transaction was committed whose COMMIT was not
// answered: it leaves a mark, in a row that no other transaction changes at the same
// time. The number that the server gives a transaction is not enough. A server that has
// crashed gives the numbers again that it had not written down.
type marks struct {
	mu   sync.Mutex // guards what follows
	log  string     // names this log's rows; empty before there is one
	made int
	free []*mark
}

// mark belongs to one call of Transact at a time.
type mark struct {
	slot  string // the key of its row
	value int64  // of the last transaction that has left it
}

// take returns a mark that nobody else uses.
func (m *marks) take() *mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.free); n > 0 {
		last := m.free[n-1]
		m.free = m.free[:n-1]
		return last
	}
	if m.log == "" {
		m.log = event.NewID()
	}
	m.made++
	return &mark{slot: fmt.Sprintf("%s/%d", m.log, m.made)}
}

func (m *marks) put(used *mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = append(m.free, used)
}

// markTime is how long the rows of a log are kept that was not closed.
const markTime = 7 * 24 * time.Hour

// leave leaves a new mark in the transaction.
func (m *mark) leave(ctx context.Context, tx pgx.Tx) error {
	m.value++
	const sql = `INSERT INTO commit_mark (slot, mark, at) VALUES ($1, $2, $3)
		ON CONFLICT (slot) DO UPDATE SET mark = excluded.mark, at = excluded.at`
	if _, err := tx.Exec(ctx, sql, m.slot, m.value, time.Now().UnixNano()); err != nil {
		return fmt.Errorf("pglog: mark a transaction: %w", err)
	}
	return nil
}

// errUndone means that the connection broke, and nothing was committed.
var errUndone = errors.New("the connection broke, and the transaction was undone")

// findOut looks whether the mark is there. While the server is still at work on the
// transaction, the statement waits for the row.
func (l *Log) findOut(m *mark, cause error) error {
	const sql = `INSERT INTO commit_mark (slot, mark, at) VALUES ($1, 0, $2)
		ON CONFLICT (slot) DO UPDATE SET at = excluded.at RETURNING mark`
	ctx, cancel := context.WithTimeout(context.Background(), max(l.opts.patience(), time.Second))
	defer cancel()
	for n := 0; ctx.Err() == nil; n++ {
		var found int64
		err := l.pool.QueryRow(ctx, sql, m.slot, time.Now().UnixNano()).Scan(&found)
		if err == nil && found == m.value {
			return nil
		}
		if err == nil {
			return fmt.Errorf("pglog: %w: %w", errUndone, cause)
		}
		wait(ctx, pause(n))
	}
	l.runs.Stop(&unanswered{cause})
	return l.runs.Failure()
}

// clear removes the rows of a log that is being closed, and old ones. Nothing but room is
// lost when it fails.
func (m *marks) clear(l *Log) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l.pool.Exec(ctx, "DELETE FROM commit_mark WHERE starts_with(slot, $1) OR at < $2", m.log+"/", time.Now().Add(-markTime).UnixNano())
}
