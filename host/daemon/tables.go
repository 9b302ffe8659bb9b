package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
)

// Tables returns the tables of a daemon, which [New] makes where they are missing and
// its role may.
func Tables() eventlog.TableSet { return tables }

// tables keep what modules say of themselves, which is a function of their bytes
// and, for a WASI command, of the name. So that to list tools nothing has to be
// loaded.
var tables = eventlog.TableSet{Name: "daemon", Tables: []string{"daemon_description"}, Steps: []eventlog.TableStep{tableStep(`
CREATE TABLE daemon_description (
	digest BLOB NOT NULL,
	name   TEXT NOT NULL,
	tools  TEXT NOT NULL,
	PRIMARY KEY (digest, name)
)`)}}

func tableStep(sql string) eventlog.TableStep {
	return eventlog.TableStep{SQLite: sql, Postgres: strings.ReplaceAll(sql, " BLOB ", " BYTEA ")}
}

// keepDescription stores what a module says of itself.
func (d *Daemon) keepDescription(ctx context.Context, digest chain.Hash, name string, tools []abi.ToolDescription) error {
	doc, err := json.Marshal(tools)
	if err != nil {
		return fmt.Errorf("daemon: encode a description: %w", err)
	}
	err = d.config.Log.Transact(ctx, func(tx eventlog.Tx) error {
		_, err := tx.Exec("INSERT INTO daemon_description (digest, name, tools) VALUES ($1, $2, $3)", digest[:], name, string(doc))
		return err
	})
	if errors.Is(err, eventlog.ErrConflict) {
		return nil // it says the same
	}
	return err
}

// description returns what a module says of itself, and its length in bytes.
func (d *Daemon) description(ctx context.Context, digest chain.Hash, name string) (tools []abi.ToolDescription, size int, err error) {
	err = d.config.Log.View(ctx, func(q eventlog.Querier) error {
		return q.Query("SELECT tools FROM daemon_description WHERE digest = $1 AND name = $2", []any{digest[:], name}, func(r eventlog.Row) error {
			var doc string
			if err := r.Scan(&doc); err != nil {
				return err
			}
			size = len(doc)
			return json.Unmarshal([]byte(doc), &tools)
		})
	})
	return tools, size, err
}
