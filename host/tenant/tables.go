package tenant

import (
	"strings"

	"github.com/starling-host/starling/eventlog"
)

// Tables returns the tables of a Store, which [Open] makes where they are missing and
// its role may.
func Tables() []eventlog.TableSet {
	return []eventlog.TableSet{eventlog.ModuleTables, tables, descriptions}
}

// DataKeyTable is the table with the wrapped data keys, a row for each tenant that is not
// erased.
const DataKeyTable = "tenant_data_key"

var tableNames = []string{"tenant", DataKeyTable, "tenant_api_key", "tenant_secret", "tenant_policy", "tenant_module", "tenant_answer"}

// tables are those of a Store. Points in time are nanoseconds since 1970, with
// zero for never.
var tables = eventlog.TableSet{Name: "tenant", Tables: tableNames, Steps: []eventlog.TableStep{
	step(`
CREATE TABLE tenant (
	id        TEXT    PRIMARY KEY NOT NULL,
	name      TEXT    NOT NULL,
	created   INTEGER NOT NULL,
	suspended INTEGER NOT NULL,
	erased    INTEGER NOT NULL,
	weight    INTEGER NOT NULL,
	limits    TEXT    NOT NULL
);
CREATE TABLE tenant_data_key (
	tenant  TEXT    PRIMARY KEY NOT NULL,
	id      TEXT    NOT NULL,
	master  TEXT    NOT NULL,
	wrapped BLOB    NOT NULL,
	created INTEGER NOT NULL
);
CREATE TABLE tenant_api_key (
	id      TEXT    PRIMARY KEY NOT NULL,
	tenant  TEXT    NOT NULL,
	label   TEXT    NOT NULL,
	hash    BLOB    NOT NULL,
	created INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	revoked INTEGER NOT NULL
);
CREATE INDEX tenant_api_key_by_tenant ON tenant_api_key (tenant);
CREATE TABLE tenant_secret (
	tenant   TEXT    NOT NULL,
	name     TEXT    NOT NULL,
	audience TEXT    NOT NULL,
	place    TEXT    NOT NULL,
	sealed   BLOB    NOT NULL,
	updated  INTEGER NOT NULL,
	PRIMARY KEY (tenant, name)
);
CREATE TABLE tenant_policy (
	tenant  TEXT    NOT NULL,
	version INTEGER NOT NULL,
	digest  BLOB    NOT NULL,
	text    TEXT    NOT NULL,
	created INTEGER NOT NULL,
	PRIMARY KEY (tenant, version)
);
CREATE TABLE tenant_module (
	tenant   TEXT    NOT NULL,
	name     TEXT    NOT NULL,
	digest   BLOB    NOT NULL,
	size     INTEGER NOT NULL,
	trusted  INTEGER NOT NULL,
	uploaded INTEGER NOT NULL,
	PRIMARY KEY (tenant, name)
);
CREATE TABLE tenant_answer (
	tenant  TEXT    NOT NULL,
	key     TEXT    NOT NULL,
	request BLOB    NOT NULL,
	sealed  BLOB    NOT NULL,
	expires INTEGER NOT NULL,
	PRIMARY KEY (tenant, key)
);
CREATE INDEX tenant_answer_by_expiry ON tenant_answer (expires)`),
	// Policies that were there before tenants could set their own are the operator's.
	step("ALTER TABLE tenant_policy ADD COLUMN held INTEGER NOT NULL DEFAULT 1"),
	step("ALTER TABLE tenant ADD COLUMN revision INTEGER NOT NULL DEFAULT 0"),
	step("CREATE INDEX tenant_module_by_digest ON tenant_module (digest)"),
}, Retention: map[string]string{"tenant_module": "SELECT", "tenant_answer": "SELECT, DELETE"}}

// descriptions keep what modules say of themselves, which is a function of their bytes
// and, for a WASI command, of the name. With them a host lists tools without loading
// modules.
var descriptions = eventlog.TableSet{Name: "daemon", Tables: []string{"daemon_description"}, Steps: []eventlog.TableStep{step(`
CREATE TABLE daemon_description (
	digest BLOB NOT NULL,
	name   TEXT NOT NULL,
	tools  TEXT NOT NULL,
	PRIMARY KEY (digest, name)
)`)}, Retention: map[string]string{"daemon_description": "SELECT, DELETE"}}

// postgres changes the names of the types.
var postgres = strings.NewReplacer(" BLOB", " BYTEA", " INTEGER", " BIGINT")

func step(sql string) eventlog.TableStep {
	return eventlog.TableStep{SQLite: sql, Postgres: postgres.Replace(sql)}
}
