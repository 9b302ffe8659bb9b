package book

import (
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/queue"
)

// Register writes down a process that begins to work, in the place of the one that
// had its name before, whose jobs become ready. An empty host replaces nobody.
func (b *Tx) Register(owner, host string, until time.Time) error {
	if host != "" {
		if err := b.replace("SELECT owner FROM queue_host WHERE host = $1 AND owner <> $2", host, owner); err != nil {
			return err
		}
	}
	_, err := b.tx.Exec("INSERT INTO queue_host (owner, host, until) VALUES ($1, $2, $3)", owner, host, until.UnixNano())
	return err
}

// Renew keeps a process among the living, and reports whether it still was.
func (b *Tx) Renew(owner string, until time.Time) (alive bool, err error) {
	n, err := b.tx.Exec("UPDATE queue_host SET until = $1 WHERE owner = $2", until.UnixNano(), owner)
	return n == 1, err
}

// Recover takes the processes for dead that have not renewed their lease, and makes
// their jobs ready.
func (b *Tx) Recover() error {
	return b.replace("SELECT owner FROM queue_host WHERE until < $1", b.now)
}

// Leave strikes out a process, whose jobs, if it has any, become ready.
func (b *Tx) Leave(owner string) error {
	return b.replace("SELECT owner FROM queue_host WHERE owner = $1", owner)
}

// replace strikes out the processes that the query names.
func (b *Tx) replace(query string, args ...any) error {
	var owners []string
	err := b.tx.Query(query, args, func(r eventlog.Row) error {
		var owner string
		err := r.Scan(&owner)
		owners = append(owners, owner)
		return err
	})
	for _, owner := range owners {
		if err == nil {
			err = b.reset("SELECT run_id, tenant, cancelled FROM queue_job WHERE state = 2 AND owner = $1 ORDER BY number", running, owner)
		}
		if err == nil {
			_, err = b.tx.Exec("DELETE FROM queue_host WHERE owner = $1", owner)
		}
	}
	return err
}

// Disown gives back the jobs that are written down as the owner's and are not among
// those that it has: run ids and epochs. Their attempt never began.
func (b *Tx) Disown(owner string, has map[string]uint64) error {
	var leases []queue.Lease
	if err := b.push(); err != nil {
		return err
	}
	err := b.tx.Query("SELECT run_id, epoch FROM queue_job WHERE state = 2 AND owner = $1", []any{owner}, func(r eventlog.Row) error {
		var l queue.Lease
		var epoch int64
		err := r.Scan(&l.RunID, &epoch)
		if l.Epoch = uint64(epoch); has[l.RunID] != l.Epoch {
			leases = append(leases, l)
		}
		return err
	})
	for _, l := range leases {
		if err == nil {
			err = b.Return(l, Again{Free: true})
		}
	}
	return err
}

// Open returns how many jobs may be handed out of the tenants that the transaction has met.
func (b *Tx) Open() (open int) {
	for _, t := range b.tenants {
		open += int(t.open)
	}
	return open
}

// Refresh reckons anew what may be handed out, since limits may have changed, and
// forgets tenants that have no jobs and no debt of turns.
func (b *Tx) Refresh() error {
	if err := b.load(); err != nil {
		return err
	}
	var names []string
	err := b.tx.Query("SELECT tenant FROM queue_tenant WHERE ready > 0", nil, func(r eventlog.Row) error {
		var name string
		err := r.Scan(&name)
		names = append(names, name)
		return err
	})
	for _, name := range names {
		t, loadErr := b.tenant(name)
		if loadErr != nil {
			return loadErr
		}
		t.reckon(b.rules.Limits(name))
	}
	if err != nil || len(b.tenants) > len(names) {
		return err // what this transaction has met may not be written yet
	}
	_, err = b.tx.Exec("DELETE FROM queue_tenant WHERE ready = 0 AND sleeping = 0 AND running = 0 AND ending = 0 AND tag <= $1", b.virtual)
	return err
}
