package main

import (
	"context"
	"time"

	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/host/tenant"
)

// wipe has a server write the table of data keys anew, since the wrapped key of a tenant
// that was erased is still in its pages, and says where that is left to others. It
// reports whether it was done; nil for a file, in which the key was overwritten.
func (a *app) wipe(ctx context.Context, log database) *bool {
	server, ok := log.(*pglog.Log)
	if !ok {
		return nil
	}
	kept, err := rewriteDataKeys(ctx, server)
	done := err == nil && kept == 0
	switch {
	case err != nil:
		a.stderr.printf("warning: the wrapped data key is still in the file of its table: %s\n", plainError(err))
	case !done:
		a.stderr.printf("warning: the wrapped data key is still in the file of its table: a transaction is open that might read it\n")
	}
	if !done {
		a.stderr.printf("hint: erase again later, or have the owner of the table do: VACUUM FULL %s\n", tenant.DataKeyTable)
	}
	return &done
}

// On a server that is in use some transaction is open at any moment that began before the
// key was removed. It is over soon, so the table is written anew a few times.
const (
	wipeTries = 5
	wipePause = 200 * time.Millisecond
)

// rewriteDataKeys returns how many rows the server has kept that were deleted.
func rewriteDataKeys(ctx context.Context, server *pglog.Log) (kept int, err error) {
	for range wipeTries {
		if kept, err = server.Rewrite(ctx, tenant.DataKeyTable); err != nil || kept == 0 {
			return kept, err
		}
		select {
		case <-time.After(wipePause):
		case <-ctx.Done():
			return kept, context.Cause(ctx)
		}
	}
	return kept, nil
}
