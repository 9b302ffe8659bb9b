package pglog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/starling-host/starling/eventlog"
)

// SQLSTATE codes, see appendix A of PostgreSQL's manual.
const (
	uniqueViolation       = "23505"
	serializationFailure  = "40001"
	deadlockDetected      = "40P01"
	readOnlyTransaction   = "25006"
	tooManyConnections    = "53300"
	lockNotAvailable      = "55P03"
	idleInTransaction     = "25P03"
	protocolViolation     = "08P01"
	statementExists       = "42P05"
	noSuchStatement       = "26000"
	insufficientPrivilege = "42501"
	relationExists        = "42P07"
	noSuchColumn          = "42703"
	connectionClass       = "08"
	resourceClass         = "53" // connections, memory or the disk
	interventionClass     = "57" // the server is shut down, starts, or cancels the statement
)

// code returns what the server calls the error, or nothing when it did not come from
// the server.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// Denied reports whether err is that the role may not do what it tried: the owner of the
// tables has to, or has to let it (see [Log.Grant]).
func Denied(err error) bool { return code(err) == insufficientPrivilege || errors.Is(err, errNotOwner) }

var errNotOwner = errors.New("the tables belong to the role")

// explainForeign says what it means that a relation of ours cannot be made, or has not
// our columns: somebody else has one of that name.
func (l *Log) explainForeign(err error) error {
	if c := code(err); c != relationExists && c != noSuchColumn {
		return err
	}
	return fmt.Errorf("%w: another program has a table or index of that name in database %q; hint: "+
		"give the log a database of its own, or a schema of its own, named by search_path in the address",
		err, l.pool.Config().ConnConfig.Database)
}

// isConflict reports whether err says that a row with that key exists.
func isConflict(err error) bool { return code(err) == uniqueViolation }

// isRefusal reports whether the server has undone a transaction because of another one,
// so that it may be tried again at once.
func isRefusal(err error) bool {
	c := code(err)
	return c == serializationFailure || c == deadlockDetected
}

// isAway reports whether err is that there is no server to talk to, or that it has no time
// or no room for the moment.
func isAway(err error) bool {
	switch c := code(err); {
	case c != "":
		return c == lockNotAvailable || c == idleInTransaction || strings.HasPrefix(c, connectionClass) ||
			strings.HasPrefix(c, resourceClass) || strings.HasPrefix(c, interventionClass)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded): // which is a net.Error
		return false
	}
	_, network := errors.AsType[net.Error](err)
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return network || connecting || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// orUnavailable makes an error of a server that is away [eventlog.ErrUnavailable] as well,
// once.
func orUnavailable(err error) error {
	if isAway(err) && !errors.Is(err, eventlog.ErrUnavailable) {
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	return err
}

// isTransient reports whether the same statement may succeed on another connection: the
// connection broke, or the server is not itself for the moment. A server that only
// reads is one that has not been promoted yet.
func isTransient(err error) bool {
	for _, final := range []error{nil, pgx.ErrNoRows, eventlog.ErrLogCorrupt, eventlog.ErrSchemaTooNew, eventlog.ErrSchemaOutdated} {
		if errors.Is(err, final) {
			return false
		}
	}
	switch c := code(err); {
	case c == "", c == readOnlyTransaction, c == tooManyConnections, c == lockNotAvailable:
		return true
	default:
		return isRefusal(err) || strings.HasPrefix(c, connectionClass) || strings.HasPrefix(c, interventionClass)
	}
}
