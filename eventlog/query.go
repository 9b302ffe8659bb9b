package eventlog

import "context"

// QueryAll returns the result of scan for each row of a query.
func QueryAll[T any](q Querier, sql string, args []any, scan func(Row) (T, error)) (list []T, err error) {
	err = q.Query(sql, args, func(r Row) error {
		one, err := scan(r)
		list = append(list, one)
		return err
	})
	return list, err
}

// QueryOne scans the only row of a query, and reports whether there is one.
func QueryOne(q Querier, sql string, args []any, to ...any) (found bool, err error) {
	err = q.Query(sql, args, func(r Row) error {
		found = true
		return r.Scan(to...)
	})
	return found, err
}

// ViewAll is [QueryAll] on the database.
func ViewAll[T any](ctx context.Context, db Transactor, sql string, args []any, scan func(Row) (T, error)) ([]T, error) {
	return View(ctx, db, func(q Querier) ([]T, error) { return QueryAll(q, sql, args, scan) })
}

// View returns the result of read on one consistent state of the database.
func View[T any](ctx context.Context, db Transactor, read func(Querier) (T, error)) (value T, err error) {
	err = db.View(ctx, func(q Querier) (err error) {
		value, err = read(q)
		return err
	})
	return value, err
}
