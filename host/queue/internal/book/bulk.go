package book

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/starling-host/starling/eventlog"
)

// bulk is a statement about many rows. On a server each statement costs a journey,
// which is most of what a small one costs.
type bulk struct {
	head, row, tail string // a ? in row stands for a value
	separator       string // between two rows
}

// maxRows bounds the rows of one statement.
const maxRows = 64

// each calls run with the statement for all rows, in portions of a power of two, so
// that there are few texts and each is prepared once.
func (s bulk) each(rows [][]any, run func(sql string, args []any) error) error {
	for len(rows) > 0 {
		n := min(1<<(bits.Len(uint(len(rows)))-1), maxRows)
		var args []any
		for _, row := range rows[:n] {
			args = append(args, row...)
		}
		if err := run(s.text(n), args); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// text returns the statement for n rows.
func (s bulk) text(n int) string {
	var sql strings.Builder
	sql.WriteString(s.head)
	arg := 0
	for i := range n {
		if i > 0 {
			sql.WriteString(s.separator)
		}
		for j, part := range strings.Split(s.row, "?") {
			if j > 0 {
				arg++
				fmt.Fprintf(&sql, "$%d", arg)
			}
			sql.WriteString(part)
		}
	}
	sql.WriteString(s.tail)
	return sql.String()
}

// exec runs the statement for all rows and returns how many it changed.
func (s bulk) exec(tx eventlog.Tx, rows [][]any) (changed int64, err error) {
	err = s.each(rows, func(sql string, args []any) error {
		n, err := tx.Exec(sql, args...)
		changed += n
		return err
	})
	return changed, err
}

// query runs the statement for all rows.
func (s bulk) query(tx eventlog.Tx, rows [][]any, row func(eventlog.Row) error) error {
	return s.each(rows, func(sql string, args []any) error { return tx.Query(sql, args, row) })
}
