package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/cipherlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/sqlitelog"
)

// sealedDatabase returns the path of a database with one run of a tenant.
func sealedDatabase(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "host.db")
	inner, err := sqlitelog.Open(t.Context(), path, sqlitelog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := cipherlog.NewKey(make([]byte, cipherlog.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	log, err := cipherlog.New(inner, key, "acme")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range logtest.Finished("acme/01JGQ4T0000000000000000000", 3) {
		if err := log.Append(t.Context(), e.RunID, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Whoever has the file and no key can validate a tenant's runs and list them;
// everything else says that they are encrypted, instead of showing them as empty.
func TestSealedRunsWithoutTheKey(t *testing.T) {
	db := sealedDatabase(t)
	for _, tc := range []struct {
		args []string
		code int
		want string // on either output
	}{
		{[]string{"validate", db}, exitOK, "valid    acme/01JGQ4T0000000000000000000  7 events, 7 sealed, root "},
		{[]string{"validate", db, "-o", "json"}, exitOK, `"events":7,"sealed":7,"head":"`},
		{[]string{"runs", db}, exitOK, "acme/01JGQ4T0000000000000000000"},
		{[]string{"show", db, "@last"}, exitOK, "the payload is sealed; only the data key opens it"},
		{[]string{"replay", db, "@last"}, exitRefused, "the payload is sealed"},
	} {
		var out bytes.Buffer
		code := Main(tc.args, strings.NewReader(""), &out, &out)
		if code != tc.code || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%s: exit code %d\n%s", tc.args[0], code, out.String())
		}
	}
}
