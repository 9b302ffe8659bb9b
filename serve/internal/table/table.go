// Package table reads the tables that a host keeps beside the log.
package table

import (
	"context"

	"github.com/starling-host/starling/eventlog"
)

// All returns what scan makes of each row of a query.
func All[T any](q eventlog.Querier, sql string, args []any, scan func(eventlog.Row) (T, error)) (list []T, err error) {
	err = q.Query(sql, args, func(r eventlog.Row) error {
		one, err := scan(r)
		list = append(list, one)
		return err
	})
	return list, err
}

// One scans the only row of a query, and reports whether there is one.
func One(q eventlog.Querier, sql string, args []any, to ...any) (found bool, err error) {
	err = q.Query(sql, args, func(r eventlog.Row) error {
		found = true
		return r.Scan(to...)
	})
	return found, err
}

// View returns what read makes of the database, as it is at one moment.
func View[T any](ctx context.Context, db eventlog.Transactor, read func(eventlog.Querier) (T, error)) (value T, err error) {
	err = db.View(ctx, func(q eventlog.Querier) (err error) {
		value, err = read(q)
		return err
	})
	return value, err
}
