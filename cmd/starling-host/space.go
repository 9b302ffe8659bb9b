package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/disk"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/observe"
)

// databaseBytes returns the size of a database, with the WAL of a file.
func databaseBytes(ctx context.Context, log eventlog.Transactor, where string) (bytes int64, err error) {
	if onServer(where) {
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

// databaseRoom returns the room on the disk of a file, with what runs and modules that were
// removed have left in the file.
func databaseRoom(log eventlog.Transactor, path string) (disk.Room, error) {
	room, err := disk.Of(path)
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

// spaceState is what the metrics say of the host's room.
func (h *host) spaceState(ctx context.Context) observe.SpaceState {
	s := observe.SpaceState{Disks: map[string]observe.DiskState{}, Compiled: -1}
	folders := map[string]string{}
	if !onServer(h.file.Database) {
		folders["database"] = filepath.Dir(h.file.Database)
	}
	if dir := compileCacheDir(); dir != "" {
		folders["cache"] = dir
		s.Compiled = sandbox.CacheBytes(dir)
	}
	for name, dir := range folders {
		if room, err := disk.Of(dir); err == nil {
			s.Disks[name] = observe.DiskState{Free: room.Free, Total: room.Total}
		}
	}
	var err error
	if s.Database, err = databaseBytes(ctx, h.log, h.file.Database); err != nil {
		s.Database = -1
	}
	if s.Modules, s.Bytes, err = h.tenants.HeldBytes(ctx, ""); err != nil {
		s.Modules, s.Bytes = -1, -1
	}
	return s
}
