package book

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/starling-host/starling/eventlog"
)

// bulk says something of many rows. On a server each statement costs a journey, which
// is most of what a small one costs, so there one statement speaks of many rows. In a
// file there is one for each row: SQLite keeps copies of all pages that a longer one
// changes, in case it fails halfway.
type bulk struct {
	one string // the statement for one row

	head, row, tail string // of the statement for many; a ? in row stands for a value
	separator       string // between two rows
	texts           []string
}

// maxRows bounds the rows of one statement. Their numbers are powers of two, so that
// there are few texts and each is prepared once.
const maxRows = 64

// write writes down the statements for all numbers of rows.
func (s bulk) write() bulk {
	for n := 1; n <= maxRows; n *= 2 {
		s.texts = append(s.texts, s.text(n))
	}
	return s
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
	for len(rows) > 0 {
		size := min(bits.Len(uint(len(rows))), len(s.texts)) - 1
		n := 1 << size
		var args []any
		for _, row := range rows[:n] {
			args = append(args, row...)
		}
		if err := run(s.texts[size], args); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
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
