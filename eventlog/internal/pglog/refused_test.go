package pglog

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/starling-host/starling/eventlog"
)

// TestServersOwnWordsComeFirst: the error quotes a server without TLS that refuses a role,
// and not the attempt with TLS.
func TestServersOwnWordsComeFirst(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			refuse(conn)
		}
	}()
	for _, mode := range []string{"prefer", "disable", "require"} {
		_, err := Open(t.Context(), "postgres://nobody@"+l.Addr().String()+"/starling?sslmode="+mode, Options{})
		const want = `pglog: the server refuses the connection: FATAL: password authentication failed for user "nobody" (SQLSTATE 28P01)`
		if mode != "require" && (err == nil || err.Error() != want) || mode == "require" && (err == nil || !strings.Contains(err.Error(), "refused TLS")) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// refuse is a server without TLS that refuses every role.
func refuse(conn net.Conn) {
	defer conn.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(size[:])-4)
		if _, err := io.ReadFull(conn, body); err != nil {
			return
		}
		const sslRequest = 80877103
		if binary.BigEndian.Uint32(body) == sslRequest {
			_, _ = conn.Write([]byte("N"))
			continue
		}
		said := pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: `password authentication failed for user "nobody"`}
		answer, _ := said.Encode(nil)
		_, _ = conn.Write(answer)
		return
	}
}

// TestWhatIsTriedAgain: only errors of the connection, and the server's own that pass, are tried again.
func TestWhatIsTriedAgain(t *testing.T) {
	server := func(code string) error { return &pgconn.PgError{Code: code} }
	for err, want := range map[error]bool{
		io.EOF: true, io.ErrUnexpectedEOF: true, &net.OpError{Op: "read", Err: errors.New("reset")}: true, pgconn.ErrConnClosed: true,
		context.DeadlineExceeded: true, server("08006"): true, server("57P01"): true, server("25006"): true, server("53300"): true, server("55P03"): true, server("40001"): true,
		nil: false, errors.New("any"): false, pgx.ErrNoRows: false, eventlog.ErrLogCorrupt: false, eventlog.ErrSchemaTooNew: false, eventlog.ErrSchemaOutdated: false,
		pgx.ScanArgError{Err: errors.New("text")}: false, &json.SyntaxError{}: false, server("42501"): false, server("53100"): false, server("22P02"): false,
	} {
		wrapped := err
		if err != nil {
			wrapped = fmt.Errorf("pglog: %w", err)
		}
		if got := isTransient(wrapped); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}

// TestAnErrorOfTheReaderIsNotTriedAgain, and a role that may only read is refused when the log is
// opened for writing.
func TestAnErrorOfTheReaderIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	l, dsn := open(t)
	calls, broken := 0, errors.New("cannot be read")
	err := l.View(t.Context(), func(eventlog.Querier) error {
		calls++
		return broken
	})
	if !errors.Is(err, broken) || calls != 1 {
		t.Errorf("%d calls: %v", calls, err)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, connectTo(t, dsn), "ALTER DATABASE "+pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()+" SET default_transaction_read_only = on")
	_, err = Open(t.Context(), dsn, Options{AutoMigrate: true})
	if !errors.Is(err, eventlog.ErrReadOnly) || !strings.Contains(err.Error(), "hint: ALTER ROLE") {
		t.Errorf("a read-only role: %v", err)
	}
	if err := openAt(t, dsn, Options{ReadOnly: true}).View(t.Context(), func(eventlog.Querier) error { return nil }); err != nil {
		t.Error(err)
	}
}
