package sqlitelog

import (
	"errors"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
)

func TestScratch(t *testing.T) {
	l := open(t)
	set := eventlog.TableSet{Name: "a", Steps: []eventlog.TableStep{{SQLite: "CREATE TABLE a (id INTEGER PRIMARY KEY, v BLOB, s TEXT); CREATE INDEX a_s ON a (s)"}}}
	for range 2 {
		if err := l.CreateTables(t.Context(), set); err != nil {
			t.Fatal(err)
		}
	}
	c := logtest.Chain{RunID: "r"}
	err := l.Transact(t.Context(), func(tx eventlog.Tx) error {
		if _, err := tx.Exec("INSERT INTO a (id, v, s) VALUES ($1, $2, $3)", int64(1), []byte{}, "x"); err != nil {
			return err
		}
		return tx.Append("r", c.Start("g"))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = l.Transact(t.Context(), func(tx eventlog.Tx) error {
		_, err := tx.Exec("INSERT INTO a (id, v, s) VALUES ($1, $2, $3)", int64(1), []byte{}, "x")
		return err
	})
	if !errors.Is(err, eventlog.ErrConflict) {
		t.Error(err)
	}
	storeAll(t, l, []event.Event{c.Effect(1)})
	err = l.View(t.Context(), func(q eventlog.Querier) error {
		return q.Query("SELECT v, s FROM a WHERE id = $1", []any{int64(1)}, func(r eventlog.Row) error {
			var v []byte
			var s string
			err := r.Scan(&v, &s)
			if v == nil || s != "x" {
				t.Error(v, s)
			}
			return err
		})
	})
	if err != nil {
		t.Error(err)
	}
	var epoch uint64
	if err := l.Transact(t.Context(), func(tx eventlog.Tx) (err error) { epoch, err = tx.Fence("r"); return err }); err != nil || epoch != 1 {
		t.Error(epoch, err)
	}
	e := c.Effect(1)
	if err := l.Append(t.Context(), "r", e); !errors.Is(err, eventlog.ErrFenced) {
		t.Error(err)
	}
	f := l.Fenced("r", 1)
	if err := f.Append(t.Context(), "r", e); err != nil {
		t.Error(err)
	}
	if err := f.Sync(t.Context(), "r"); err != nil {
		t.Error(err)
	}
	if _, err := eventlog.CheckRun(t.Context(), l, "r", eventlog.CheckOptions{Strict: true, AllowOpen: true}); err != nil {
		t.Error(err)
	}
	l.Close()
	openAt(t, l.path, Options{ReadOnly: true})
}
