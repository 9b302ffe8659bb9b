package pglog

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
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
