package dblog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// Bounds of one transaction that stores or removes contents; others write between two of them.
const (
	batchContents = 256
	batchBytes    = 1 << 20  // stored
	removedBytes  = 16 << 20 // removed; a larger content goes alone
)

// NoFolder is a condition of rows of module_use: the user is not a folder. An imported run can have the id
// of one.
const NoFolder = " AND used_by NOT LIKE '" + eventlog.TreeUserPrefix + "%'"

// Uses returns what a run uses because of an event: the modules that the event names and that the log
// had when this process asked last, and the root of files that it names. The writer refuses the run if
// one of them has been removed since. If the event is encrypted or from a newer program, the log cannot
// read what it names, and the result is empty.
func (x *Backend) Uses(ctx context.Context, ev event.Event) (uses []canon.Hash, err error) {
	modules, roots, err := ev.Needs()
	if err != nil {
		return nil, nil
	}
	for _, digest := range modules {
		_, found := x.found.Load(digest)
		if !found {
			if found, err = x.hasModule(ctx, digest); err != nil {
				return nil, err
			}
		}
		if found && !slices.Contains(uses, digest) {
			uses = append(uses, digest)
		}
	}
	return append(uses, roots...), nil
}

// PutContents implements [eventlog.ModuleStore].
func (l *Log) PutContents(ctx context.Context, user string, contents []eventlog.Content) error {
	digests := make([]canon.Hash, len(contents))
	for i, c := range contents {
		if len(c.Bytes) > eventlog.MaxModuleBytes {
			return fmt.Errorf("%s: a file has %d bytes; at most %d are allowed", l.x.Name, len(c.Bytes), eventlog.MaxModuleBytes)
		}
		digests[i] = canon.Sum(c.Bytes)
	}
	return l.put(ctx, "store files", user, contents, digests)
}

// put stores contents, or a module, which is a content that lists none. Before a content has a user, a
// removal of unused ones may take it away; then everything is stored again.
func (l *Log) put(ctx context.Context, what, user string, contents []eventlog.Content, digests []canon.Hash) error {
	if err := l.x.Runs.Writable(); err != nil || len(contents) == 0 {
		return err
	}
	err := l.putContents(ctx, user, contents, digests)
	for again := 0; again < 3 && (errors.Is(err, eventlog.ErrModuleNotFound) || errors.Is(err, eventlog.ErrConflict)); again++ {
		err = l.putContents(ctx, user, contents, digests)
	}
	if err != nil {
		err = l.x.failed(what, err)
	}
	return err
}

func (l *Log) putContents(ctx context.Context, user string, contents []eventlog.Content, digests []canon.Hash) error {
	x := l.x
	todo, err := x.lacking(ctx, contents, digests)
	if err != nil {
		return err
	}
	if len(todo) == 0 && user == "" {
		return eventlog.Confirm(ctx, l.self)
	}
	transact := l.self.Transact
	if server, ok := l.self.(eventlog.Shared); ok { // foreign keys do there what reading would
		transact = server.TransactCommitted
	}
	for last := false; !last; {
		var rows []moduleRow
		var folders []int
		for n, size := 0, 0; len(todo) > 0 && n < batchContents && size < batchBytes; n++ {
			i, content := todo[0], contents[todo[0]]
			if todo = todo[1:]; len(content.Uses) > 0 {
				folders = append(folders, i)
			}
			if x.Pieces && len(content.Bytes) > PieceBytes {
				if err := x.StoreModule(ctx, digests[i], content.Bytes); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, moduleRow{digests[i], int64(len(content.Bytes)), Pack(content.Bytes)})
			size += len(rows[len(rows)-1].packed)
		}
		// Two writers with the same contents wait for each other, and not both.
		slices.SortFunc(rows, func(a, b moduleRow) int { return bytes.Compare(a.digest[:], b.digest[:]) })
		last = len(todo) == 0
		err := transact(ctx, func(tx eventlog.Tx) error {
			err := storeRows(tx, rows)
			for _, i := range folders {
				if err == nil {
					err = useAll(tx, eventlog.TreeUser(digests[i]), contents[i].Uses)
				}
			}
			if err == nil && last && user != "" {
				err = eventlog.UseModules(tx, user, digests[len(digests)-1])
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lacking returns the places of the contents that are not stored, or not as folders: the row of a folder and those
// of all that it uses are written, and removed, in one transaction.
func (x *Backend) lacking(ctx context.Context, contents []eventlog.Content, digests []canon.Hash) (todo []int, err error) {
	stored, folders := map[canon.Hash]bool{}, map[string]bool{}
	for chunk := range slices.Chunk(digests, batchContents) {
		err := x.Read(ctx, func(q eventlog.Querier) error {
			places, args := in(chunk, func(d canon.Hash) any { return d[:] })
			found, err := eventlog.QueryAll(q, "SELECT digest FROM module WHERE digest IN "+places, args, scanDigest)
			for _, digest := range found {
				stored[digest] = true
			}
			if err != nil {
				return err
			}
			places, args = in(chunk, func(d canon.Hash) any { return eventlog.TreeUser(d) })
			users, err := IDs(q, "SELECT DISTINCT used_by FROM module_use WHERE used_by IN "+places, args...)
			for _, user := range users {
				folders[user] = true
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for i, digest := range digests {
		if !stored[digest] || len(contents[i].Uses) > 0 && !folders[eventlog.TreeUser(digest)] {
			todo = append(todo, i)
			stored[digest], folders[eventlog.TreeUser(digest)] = true, len(contents[i].Uses) > 0
		}
	}
	return todo, nil
}

// moduleRow is a row of the table module.
type moduleRow struct {
	digest canon.Hash
	size   int64
	packed []byte
}

// storeRows stores those rows that are not there. Its statements have 1, 2, 4, 8 and so on rows, so that there are
// few of them to prepare.
func storeRows(tx eventlog.Tx, rows []moduleRow) error {
	for len(rows) > 0 {
		n := 1 << (bits.Len(uint(len(rows))) - 1)
		values, args := "", []any{}
		for i, r := range rows[:n] {
			values += fmt.Sprintf(", ($%d, $%d, $%d)", 3*i+1, 3*i+2, 3*i+3)
			args = append(args, r.digest[:], r.size, r.packed)
		}
		if _, err := tx.Exec("INSERT INTO module (digest, size, wasm) VALUES "+values[2:]+" ON CONFLICT (digest) DO NOTHING", args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// useAll is [eventlog.UseModules] in few statements.
func useAll(tx eventlog.Tx, user string, digests []canon.Hash) error {
	for chunk := range slices.Chunk(distinct(digests), batchContents) {
		places, args := in(chunk, func(d canon.Hash) any { return d[:] })
		sql := fmt.Sprintf("INSERT INTO module_use (digest, used_by) SELECT digest, $%d FROM module WHERE digest IN %s"+
			" ON CONFLICT (digest, used_by) DO UPDATE SET used_by = excluded.used_by", len(args)+1, places)
		n, err := tx.Exec(sql, append(args, user)...)
		if err == nil && int(n) < len(chunk) {
			err = fmt.Errorf("%w: %d of %d contents that %s lists", eventlog.ErrModuleNotFound, len(chunk)-int(n), len(chunk), user)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// distinct returns the digests in order, each once.
func distinct(digests []canon.Hash) []canon.Hash {
	sorted := slices.SortedFunc(slices.Values(digests), func(a, b canon.Hash) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(sorted)
}

// in returns a list of placeholders in parentheses, and their arguments. The last one is repeated, so that there are
// few lengths of lists, and few statements to prepare.
func in(digests []canon.Hash, argument func(canon.Hash) any) (places string, args []any) {
	for i := range 1 << bits.Len(uint(len(digests)-1)) {
		places += fmt.Sprintf(", $%d", i+1)
		args = append(args, argument(digests[min(i, len(digests)-1)]))
	}
	return "(" + places[2:] + ")", args
}

// RemoveUnusedModules implements [eventlog.Database]. What a removed folder listed is looked at after it,
// so a whole tree goes, level by level.
func (l *Log) RemoveUnusedModules(ctx context.Context, digests ...canon.Hash) (removed eventlog.ModuleCount, err error) {
	if may, err := l.x.MayRemoveModules(ctx); err != nil || !may {
		return removed, err
	}
	rest := slices.Clone(digests)
	if len(digests) == 0 {
		sql := "SELECT digest" + unused
		if l.x.Pieces { // also of modules that were not stored to the end
			sql += " UNION SELECT digest" + unowned
		}
		err = l.x.Read(ctx, func(q eventlog.Querier) (err error) {
			rest, err = eventlog.QueryAll(q, sql, nil, scanDigest)
			return err
		})
	}
	for refused := 0; err == nil && len(rest) > 0; {
		batch := rest[:min(len(rest), batchContents)]
		var count eventlog.ModuleCount
		var next []canon.Hash
		err = l.self.Transact(ctx, func(tx eventlog.Tx) (err error) {
			count, next, err = l.x.removeUnused(tx, batch)
			return err
		})
		if errors.Is(err, eventlog.ErrConflict) { // a run that uses one of them has begun meanwhile
			count, next, err = eventlog.ModuleCount{}, nil, nil
			if refused++; refused < 10 {
				continue
			}
		}
		removed.Modules += count.Modules
		removed.Bytes += count.Bytes
		rest = append(rest[len(batch):], next...)
	}
	if err != nil {
		err = l.x.failed("remove unused modules", err)
	}
	return removed, err
}

const (
	unused  = " FROM module WHERE NOT EXISTS (SELECT 1 FROM module_use AS u WHERE u.digest = module.digest)"
	unowned = " FROM module_piece WHERE NOT EXISTS (SELECT 1 FROM module AS m WHERE m.digest = module_piece.digest)"
)

// removeUnused removes those of the modules that nothing uses, and returns which to look at next.
func (x *Backend) removeUnused(tx eventlog.Tx, batch []canon.Hash) (removed eventlog.ModuleCount, next []canon.Hash, err error) {
	places, args := in(batch, func(d canon.Hash) any { return d[:] })
	var gone []canon.Hash
	err = tx.Query("SELECT size, digest"+unused+" AND digest IN "+places, args, func(r eventlog.Row) error {
		var size int64
		var digest []byte
		err := r.Scan(&size, &digest)
		if len(gone) > 0 && removed.Bytes+size > removedBytes {
			next = append(next, canon.Hash(digest))
			return err
		}
		gone = append(gone, canon.Hash(digest))
		removed.Modules++
		removed.Bytes += size
		return err
	})
	if err == nil && len(gone) > 0 {
		places, args := in(gone, func(d canon.Hash) any { return d[:] })
		if _, err = tx.Exec("DELETE FROM module WHERE digest IN "+places, args...); err != nil {
			return removed, next, err
		}
		places, args = in(gone, func(d canon.Hash) any { return eventlog.TreeUser(d) })
		var listed []canon.Hash
		if listed, err = eventlog.QueryAll(tx, "SELECT DISTINCT digest FROM module_use WHERE used_by IN "+places, args, scanDigest); err == nil && len(listed) > 0 {
			_, err = tx.Exec("DELETE FROM module_use WHERE used_by IN "+places, args...)
		}
		next = append(next, listed...)
	}
	if err == nil && x.Pieces {
		_, err = tx.Exec("DELETE"+unowned+" AND digest IN "+places, args...)
	}
	return removed, next, err
}

func scanDigest(r eventlog.Row) (canon.Hash, error) {
	var digest []byte
	err := r.Scan(&digest)
	if len(digest) != len(canon.Hash{}) {
		return canon.Hash{}, fmt.Errorf("%w: a digest has %d bytes", eventlog.ErrLogCorrupt, len(digest))
	}
	return canon.Hash(digest), err
}
