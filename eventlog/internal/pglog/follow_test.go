package pglog

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
)

// TestNotifyNamesGrownRuns listens as another host does.
func TestNotifyNamesGrownRuns(t *testing.T) {
	t.Parallel()
	l, dsn := open(t)
	conn := connectTo(t, dsn)
	execute(t, conn, "LISTEN "+channel)
	expect := func(want string) {
		t.Helper()
		note, err := conn.WaitForNotification(t.Context())
		if err != nil || note.Payload != want {
			t.Errorf("%+v, %v; want %q", note, err, want)
		}
	}
	evs := logtest.Finished("run-1", 1)
	storeAll(t, l, evs[0])
	expect("run-1\n")
	err := l.Transact(t.Context(), func(tx eventlog.Tx) error { return tx.Append("run-1", evs[1]) })
	if err != nil {
		t.Fatal(err)
	}
	expect("run-1\n")
	l.notifier.tell("line\nbreak") // as the Starling runtime may have named a run
	expect("")                     // may be any run
}

// TestAStreamFollowsAnotherHost follows another host's appends by notifications, and by
// polling without them.
func TestAStreamFollowsAnotherHost(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{true, false} {
		first, dsn := open(t)
		second := openAt(t, dsn, Options{ReadOnly: true})
		second.listener.poll = time.Millisecond
		if told {
			second.listener.poll = time.Hour
		}
		evs := logtest.Finished("run-1", 10)
		ch, err := second.Stream(t.Context(), "run-1")
		if err != nil {
			t.Fatal(err)
		}
		conn, at := connectTo(t, dsn), eventlog.Cursor{}
		for _, e := range evs {
			if told {
				storeAll(t, first, e)
			} else {
				storeSilently(t, conn, &at, e)
			}
			if got := <-ch; got.Seq != e.Seq {
				t.Fatalf("event %d, want %d", got.Seq, e.Seq)
			}
		}
		if _, open := <-ch; open {
			t.Error("an event after the end")
		}
	}
}

// storeSilently appends an event without a notification, like a host that dies right
// after the commit.
func storeSilently(t testing.TB, conn *pgx.Conn, at *eventlog.Cursor, e event.Event) {
	t.Helper()
	if err := at.Append(e.RunID, e); err != nil {
		t.Fatal(err)
	}
	var c columns
	c.add(0, 0, e, at.Run())
	if refused, err := c.insert(t.Context(), conn, nil); err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
}
