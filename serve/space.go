package serve

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// DatabaseBytes returns the size of a database, with the WAL of a file.
func DatabaseBytes(ctx context.Context, log eventlog.Transactor, where string) (bytes int64, err error) {
	if store.OnServer(where) {
		err = log.View(ctx, func(q eventlog.Querier) error {
			return q.Query("SELECT pg_database_size(current_database())", nil, func(r eventlog.Row) error { return r.Scan(&bytes) })
		})
		return bytes, err
	}
	info, err := os.Stat(where)
	if err != nil {
		return 0, err
	}
	bytes = info.Size()
	if wal, err := os.Stat(where + "-wal"); err == nil {
		bytes += wal.Size()
	}
	return bytes, nil
}

// DatabaseRoom returns the free space for a database file: on its disk, and in the file
// where runs and modules were removed.
func DatabaseRoom(log eventlog.Transactor, path string) (guest.DiskRoom, error) {
	room, err := guest.DiskRoomOf(path)
	if err != nil {
		return room, err
	}
	const free = "SELECT f.freelist_count * p.page_size FROM pragma_freelist_count() AS f, pragma_page_size() AS p"
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = log.View(ctx, func(q eventlog.Querier) error {
		return q.Query(free, nil, func(r eventlog.Row) error { return r.Scan(&room.Reusable) })
	})
	return room, err
}

// spaceState returns the free space for the metrics.
func (h *Host) spaceState(ctx context.Context) observe.SpaceState {
	s := observe.SpaceState{Disks: map[string]observe.DiskState{}, Compiled: -1}
	where, folders := h.file.Database, map[string]string{}
	if !store.OnServer(where) {
		folders["database"] = filepath.Dir(where)
	}
	if dir := starling.CodeCacheFolder(); dir != "" {
		folders["cache"] = dir
		s.Compiled = sandbox.CacheBytes(dir)
	}
	for name, dir := range folders {
		if room, err := guest.DiskRoomOf(dir); err == nil {
			s.Disks[name] = observe.DiskState{Free: room.Free, Total: room.Total}
		}
	}
	var err error
	if s.Database, err = DatabaseBytes(ctx, h.log, where); err != nil {
		s.Database = -1
	}
	s.Modules, s.Bytes = -1, -1
	if modules, err := eventlog.CountModules(ctx, h.log, ""); err == nil {
		s.Modules, s.Bytes = int64(modules.Modules), modules.Bytes
	}
	return s
}

// queueState returns the state of the queue for the metrics.
func (h *Host) queueState(ctx context.Context) (observe.QueueState, error) {
	s, err := h.queue.Stats(ctx)
	if err != nil {
		return observe.QueueState{}, err
	}
	state := observe.QueueState{Tenants: s.Tenants, Waiting: s.Waiting, Sleeping: s.Sleeping, Running: s.Running, Oldest: s.Oldest, Hosts: map[string]int{}}
	hosts, err := h.queue.Hosts(ctx)
	for _, one := range hosts {
		state.Hosts[one.State]++
	}
	return state, err
}

// UsageOf returns the usage of tenants.
func UsageOf(ctx context.Context, log store.Database, tenants *tenant.Store, q *queue.Queue, defaults tenant.Limits, f tenant.UsageFilter) (tenant.UsageList, error) {
	return daemon.UsageOf(ctx, log, tenants, q, defaults, f)
}
