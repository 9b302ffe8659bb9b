package pglog

import (
	"bytes"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/pgtest"
)

// TestARewrittenTableHasNoOldBytes: the server keeps the bytes of rows that were deleted,
// after VACUUM as well. No other row replaces the bytes of the row inserted last.
func TestARewrittenTableHasNoOldBytes(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Start(t, "fsync=off").Database(t) // roles belong to a server
	l := openAt(t, dsn, Options{AutoMigrate: true})
	super := connectTo(t, dsn)
	canary := []byte("canary-5e0b91")
	execute(t, super, "CREATE TABLE kept (name TEXT PRIMARY KEY, bytes BYTEA)")
	execute(t, super, "INSERT INTO kept VALUES ('a', 'aaaaaaaaaaaaaaaaaaaaaaaa'), ('b', $1)", canary)
	there := func() bool {
		t.Helper()
		execute(t, super, "CHECKPOINT")
		var file []byte
		if err := super.QueryRow(t.Context(), "SELECT pg_read_binary_file(pg_relation_filepath('kept'))").Scan(&file); err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(file, canary)
	}
	look := connectTo(t, dsn)
	execute(t, look, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	execute(t, look, "SELECT count(*) FROM pg_class")
	execute(t, super, "DELETE FROM kept WHERE name = 'b'")
	execute(t, super, "VACUUM kept")
	if kept, err := l.Rewrite(t.Context(), "kept"); kept != 1 || err != nil || !there() {
		t.Errorf("beside somebody who looks at it: %d rows are kept, %v", kept, err)
	}
	execute(t, look, "COMMIT")
	execute(t, super, "VACUUM kept")
	if !there() {
		t.Error("VACUUM is enough") // then Rewrite is not needed
	}
	if kept, err := l.Rewrite(t.Context(), "kept"); kept != 0 || err != nil || there() {
		t.Errorf("%d rows are kept, %v", kept, err)
	}

	execute(t, super, "CREATE ROLE stranger LOGIN; GRANT ALL ON kept TO stranger; GRANT SELECT ON ALL TABLES IN SCHEMA public TO stranger")
	if _, err := openAt(t, pgtest.As(dsn, "stranger"), Options{}).Rewrite(t.Context(), "kept"); !Denied(err) {
		t.Errorf("a role that does not own the table: %v", err)
	}
	if _, err := openAt(t, dsn, Options{ReadOnly: true}).Rewrite(t.Context(), "kept"); err != eventlog.ErrReadOnly {
		t.Errorf("a log that is read-only: %v", err)
	}
}
