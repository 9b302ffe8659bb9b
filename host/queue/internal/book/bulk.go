package book

import (
	"fmt"
	"slices"

	"github.com/starling-host/starling/eventlog"
)

// bulk says something of many rows. On a server each statement costs a journey, which
// is most of what a small one costs, so there one statement speaks of many rows: its
// parameters are arrays, one for each column. In a file there is one statement for each
// row: SQLite keeps copies of all pages that a longer one changes, in case it fails
// halfway.
type bulk struct {
	one  string // the statement for one row, in a file
	many string // for any number of rows, on a server
}

// maxRows bounds the rows of one statement, and so what it keeps in memory: a job may
// carry a megabyte.
const maxRows = 256

// each calls run with statements for all rows.
func (b *Tx) each(s *bulk, rows [][]any, run func(sql string, args []any) error) error {
	if b.server == nil {
		for _, row := range rows {
			if err := run(s.one, row); err != nil {
				return err
			}
		}
		return nil
	}
	for some := range slices.Chunk(rows, maxRows) {
		if err := run(s.many, columns(some)); err != nil {
			return err
		}
	}
	return nil
}

// columns turns rows, of which there is one at least, into an array for each column.
func columns(rows [][]any) []any {
	all := make([]any, len(rows[0]))
	for i, value := range rows[0] {
		switch value.(type) {
		case string:
			all[i] = column[string](rows, i)
		case int64:
			all[i] = column[int64](rows, i)
		case float64:
			all[i] = column[float64](rows, i)
		case []byte:
			all[i] = column[[]byte](rows, i)
		default:
			panic(fmt.Sprintf("book: column %d has a %T", i+1, value))
		}
	}
	return all
}

func column[T any](rows [][]any, i int) []T {
	values := make([]T, len(rows))
	for n, row := range rows {
		values[n] = row[i].(T)
	}
	return values
}

// execAll runs the statements for all rows and returns how many they changed.
func (b *Tx) execAll(s *bulk, rows [][]any) (changed int64, err error) {
	err = b.each(s, rows, func(sql string, args []any) error {
		n, err := b.tx.Exec(sql, args...)
		changed += n
		return err
	})
	return changed, err
}

// queryAll runs the statements for all rows.
func (b *Tx) queryAll(s *bulk, rows [][]any, row func(eventlog.Row) error) error {
	return b.each(s, rows, func(sql string, args []any) error { return b.tx.Query(sql, args, row) })
}
