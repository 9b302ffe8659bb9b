package sqlitelog

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/dblog"
)

const (
	// layoutVersion is the layout that this program writes, kept in PRAGMA
	// user_version. A file of the Starling runtime has 0 there.
	layoutVersion = 2
	// applicationID ("STLH") identifies the file to file(1) and similar tools.
	applicationID = 0x53544C48
	// seedVersion is the version in eventlog_schema_migrations, in our files and
	// in the Starling runtime's files that we read.
	seedVersion = 2

	// seedLayout is the layout of the Starling runtime's files.
	seedLayout = 0
	// uncountedLayout has no columns bytes and counted in the table run. It can be read.
	uncountedLayout = 1
)

var (
	//go:embed schema.sql
	schemaSQL string
	//go:embed earlier.sql
	earlierSQL string

	current, earlier                    = statementsOf(schemaSQL), statementsOf(earlierSQL)
	eventsTable, migrationsTable        = current[0], current[1] // of the Starling runtime
	ownTables                           = current[2:]
	seedEventsTable, unsizedModuleTable = earlier[0], earlier[1]
	uncountedRunTable                   = earlier[2]
)

// firstSegment is the expression of the index run_by_namespace.
const firstSegment = "substr(run_id, 1, instr(run_id, '/'))"

// statementsOf returns the statements of a file, which create one object each.
func statementsOf(file string) (all []string) {
	for text := range strings.SplitSeq(file, ";\n") {
		if _, rest, found := strings.Cut(text, "CREATE "); found { // after the comments
			all = append(all, "CREATE "+rest)
		}
	}
	return all
}

// requireUses refuses to write a file of an earlier commit: what uses its modules is not known.
func requireUses(ctx context.Context, c *conn) error {
	n, err := c.integer(ctx, "SELECT count(*) FROM sqlite_schema WHERE name = 'module_use'")
	if err == nil && n == 0 {
		err = dblog.ErrNoUses
	}
	return err
}

// safety is set on every connection before it reads anything but the file's
// header: a log may come from anywhere. Nothing in the file may call functions
// with side effects, sizes in b-tree pages are checked, and the file is not
// mapped, so that a truncated one is an error and not a signal.
var safety = []string{
	"PRAGMA trusted_schema=OFF",
	"PRAGMA cell_size_check=ON",
	"PRAGMA mmap_size=0",
	"PRAGMA busy_timeout=30000",
}

// creation is set on a new file, in this order and each by itself: the page size
// can only be chosen before the file is in WAL mode, and a driver that gets both
// at once silently leaves it at 4 KiB. The file keeps a map of its pages, so
// that it can become smaller in small steps; see Compact.
var creation = []string{
	"PRAGMA page_size=16384",
	"PRAGMA auto_vacuum=INCREMENTAL",
	"PRAGMA journal_mode=WAL",
}

// pageSize is the page size of a new file. At 2 KiB events, 4 KiB pages cost
// two thirds more disk.
const pageSize = 16384

// writing is set on the connection that writes. It makes no checkpoints; see
// checkpointer.
func writing(synchronous string) []string {
	return []string{
		"PRAGMA journal_mode=WAL",
		"PRAGMA synchronous=" + synchronous,
		"PRAGMA wal_autocheckpoint=0",
		"PRAGMA journal_size_limit=67108864",
		"PRAGMA cache_size=-65536",
		"PRAGMA temp_store=MEMORY",
	}
}

// checkpointing is set on the connection that moves the WAL into the database. It reads
// the header last, because only then does it know that there is a WAL.
func checkpointing(synchronous string) []string {
	return []string{"PRAGMA synchronous=" + synchronous, "PRAGMA busy_timeout=2", "PRAGMA user_version"}
}

// reading is set on the connections that read.
var reading = []string{"PRAGMA query_only=ON"}

// schema creates our layout in an empty file, as one transaction.
func schema() []string {
	return append(append([]string{"BEGIN IMMEDIATE"}, current...),
		"INSERT INTO eventlog_schema_migrations (version, applied_at) VALUES (1, 0), (2, 0)",
		fmt.Sprintf("PRAGMA application_id=%d", applicationID),
		fmt.Sprintf("PRAGMA user_version=%d", layoutVersion),
		"COMMIT")
}

// object is a row of sqlite_schema.
type object struct{ kind, name, table, sql string }

// schemaTexts are the SQL texts that each of our tables and indexes may have.
var schemaTexts = func() map[string][]string {
	texts := map[string][]string{}
	for _, sql := range slices.Concat(current, earlier) {
		name := strings.Fields(sql)[2]
		texts[name] = append(texts[name], plain(sql))
	}
	return texts
}()

// plain normalises SQL: no spaces, no quotes around names, no case.
func plain(sql string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case ' ', '\t', '\n', '\r', '"':
			return -1
		}
		return r
	}, eventlog.LowerASCII(sql))
}

// vet refuses a file whose objects are not what their names promise. A view instead
// of a table can compute for ever, a trigger can write, a generated column or an
// index can call functions; a plain table of another program can do nothing, if
// [vetColumns] finds nothing in it. It returns the layout of the file.
func vet(objects []object) (layout int, err error) {
	if len(objects) == 0 {
		return 0, fmt.Errorf("%w: the database is empty", ErrNotLog)
	}
	have := make(map[string]string, len(objects))
	for _, o := range objects {
		if err := vetObject(o); err != nil {
			return 0, err
		}
		have[eventlog.LowerASCII(o.name)] = plain(o.sql)
	}
	for _, name := range []string{"eventlog_events", "eventlog_schema_migrations"} {
		if _, ok := have[name]; !ok {
			return 0, fmt.Errorf("%w: the file has no table %s", ErrNotLog, name)
		}
	}
	if have["eventlog_events"] == plain(seedEventsTable) {
		return seedLayout, nil
	}
	for _, name := range []string{"run", "module"} {
		if _, ok := have[name]; !ok {
			return 0, &eventlog.MissingTableError{Table: name}
		}
	}
	if _, ok := have["run_by_start"]; !ok {
		return 0, fmt.Errorf("%w: the file has no index run_by_start", eventlog.ErrLogCorrupt)
	}
	if have["run"] == plain(uncountedRunTable) {
		return uncountedLayout, nil
	}
	return layoutVersion, nil
}

// vetObject looks names up as SQLite does, which knows no case in them.
func vetObject(o object) error {
	texts, ours := schemaTexts[eventlog.LowerASCII(o.name)]
	if ours {
		for _, text := range texts {
			if plain(o.sql) == text {
				return nil
			}
		}
		return refuse(o)
	}
	_, onOurs := schemaTexts[eventlog.LowerASCII(o.table)]
	switch {
	case o.kind == "index" && !onOurs, o.kind == "index" && o.sql == "":
		return nil
	case o.kind == "table" && strings.HasPrefix(plain(o.sql), "createtable"):
		return nil
	}
	return refuse(o)
}

func refuse(o object) error {
	return fmt.Errorf("%w: the file defines %s %q as %.200q, which an event log does not have", eventlog.ErrLogCorrupt, o.kind, o.name, o.sql)
}
