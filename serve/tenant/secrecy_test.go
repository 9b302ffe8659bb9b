package tenant_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/tenant"
)

const canary = "canary-91ab27"

func testSecrets(t *testing.T, open opener) {
	f := open(t)
	f.another(t, "zeta")
	ctx := t.Context()
	sec := tenant.Secret{Name: "API_KEY", Audience: []string{".example.com", "api.example.org"}, Place: tenant.PlaceHeader}
	want(t, "set", f.SetSecret(ctx, "acme", sec, tenant.NewValue("first-"+canary)), nil)
	want(t, "set again", f.SetSecret(ctx, "acme", sec, tenant.NewValue(canary)), nil)
	sec.Updated = f.clock.at
	list, err := f.Secrets(ctx, "acme")
	if diff := cmp.Diff([]tenant.Secret{sec}, list); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	got, value, err := f.Secret(ctx, "acme", "API_KEY")
	if diff := cmp.Diff(sec, got); err != nil || diff != "" || value.Reveal() != canary {
		t.Errorf("%v\n%s", err, diff)
	}
	_, _, err = f.Secret(ctx, "zeta", "API_KEY")
	want(t, "another tenant's secret", err, tenant.ErrNotFound)
	want(t, "deletion by another", f.DeleteSecret(ctx, "zeta", "API_KEY"), tenant.ErrNotFound)
	want(t, "deletion", f.DeleteSecret(ctx, "acme", "API_KEY"), nil)
	_, _, err = f.Secret(ctx, "acme", "API_KEY")
	want(t, "a secret that was deleted", err, tenant.ErrNotFound)

	bad := func(what string, change func(*tenant.Secret), value string) {
		t.Helper()
		s := sec
		change(&s)
		err := f.SetSecret(ctx, "acme", s, tenant.NewValue(value))
		want(t, what, err, tenant.ErrInvalid)
		if err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the error has the value: %v", what, err)
		}
	}
	same := func(*tenant.Secret) {}
	bad("a name in lower case", func(s *tenant.Secret) { s.Name = "api_key" }, canary)
	bad("no name", func(s *tenant.Secret) { s.Name = "" }, canary)
	bad("no audience", func(s *tenant.Secret) { s.Audience = nil }, canary)
	bad("a URL as the audience", func(s *tenant.Secret) { s.Audience = []string{"https://example.com"} }, canary)
	bad("a wildcard as the audience", func(s *tenant.Secret) { s.Audience = []string{"*"} }, canary)
	bad("no place", func(s *tenant.Secret) { s.Place = "" }, canary)
	bad("an unknown place", func(s *tenant.Secret) { s.Place = "cookie" }, canary)
	bad("a short value", same, "1234567")
	bad("a value with a line break", same, canary+"\r\nX-Evil: 1")
	bad("a value that is not text", same, canary+"\xff")
	bad("a long value", same, strings.Repeat("x", tenant.MaxSecretBytes+1))
}

// A writer to the database cannot redirect a secret, nor give one tenant
// another's data.
func testRowsDoNotMove(t *testing.T, open opener) {
	for name, sql := range map[string]string{
		"another audience":        `UPDATE tenant_secret SET audience = '["evil.test"]' WHERE tenant = 'acme'`,
		"another place":           `UPDATE tenant_secret SET place = 'query' WHERE tenant = 'acme'`,
		"another tenant's secret": `UPDATE tenant_secret SET encrypted = (SELECT encrypted FROM tenant_secret WHERE tenant = 'zeta') WHERE tenant = 'acme'`,
		"another name":            `UPDATE tenant_secret SET name = 'OTHER' WHERE tenant = 'acme'`,
		"another tenant's data key": `UPDATE tenant_data_key SET wrapped = (SELECT wrapped FROM tenant_data_key WHERE tenant = 'zeta'),
			id = (SELECT id FROM tenant_data_key WHERE tenant = 'zeta') WHERE tenant = 'acme'`,
		"a data key that was cut": `UPDATE tenant_data_key SET wrapped = substr(wrapped, 1, 1) WHERE tenant = 'acme'`,
		"an empty data key":       `UPDATE tenant_data_key SET wrapped = substr(wrapped, 1, 0) WHERE tenant = 'acme'`,
		"a secret that was cut":   `UPDATE tenant_secret SET encrypted = substr(encrypted, 1, 0) WHERE tenant = 'acme'`,
	} {
		f := open(t)
		f.another(t, "zeta")
		sec := tenant.Secret{Name: "API_KEY", Audience: []string{"example.com"}, Place: tenant.PlaceHeader}
		for _, id := range []string{"acme", "zeta"} {
			want(t, id, f.SetSecret(t.Context(), id, sec, tenant.NewValue(canary+id)), nil)
		}
		f.exec(t, sql)
		for _, secret := range []string{"API_KEY", "OTHER"} {
			if _, value, err := f.Secret(t.Context(), "acme", secret); err == nil || value.Reveal() != "" {
				t.Errorf("%s: the secret opens: %v", name, err)
			}
		}
		if _, err := f.DataKey(t.Context(), "acme"); (err == nil) != strings.Contains(sql, "tenant_secret") {
			t.Errorf("%s: the data key: %v", name, err)
		}
	}
}

func testKeyRowsDoNotMove(t *testing.T, open opener) {
	for name, sql := range map[string]string{
		"no hash":      `UPDATE tenant_api_key SET hash = substr(hash, 1, 0)`,
		"another name": `UPDATE tenant_api_key SET id = 'aaaaaaaaaaaaaaaa'`,
		"no tenant":    `UPDATE tenant_api_key SET tenant = 'nobody'`,
	} {
		f := open(t)
		_, key, err := f.CreateKey(t.Context(), "acme", "")
		if err != nil {
			t.Fatal(err)
		}
		f.exec(t, sql)
		text := key.Reveal()
		for _, presented := range []string{text, "sth_aaaaaaaaaaaaaaaa" + text[20:]} {
			if _, err := f.Authenticate(t.Context(), presented); err != tenant.ErrUnauthorized {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// exec changes the database behind the store's back.
func (f fixture) exec(t testing.TB, sql string) {
	t.Helper()
	err := f.log.Transact(t.Context(), func(tx eventlog.Tx) error {
		n, err := tx.Exec(sql)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d rows", n)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func testMasterKeys(t *testing.T, open opener) {
	f := open(t)
	ctx := t.Context()
	_, err := tenant.Open(ctx, f.log, tenant.Options{Masters: []tenant.MasterKey{tenant.NewMasterKey()}})
	want(t, "another master key", err, tenant.ErrWrongMasterKey)

	without := f.reopen(t)
	_, err = without.Create(ctx, tenant.Tenant{ID: "zeta"})
	want(t, "a tenant without a master key", err, tenant.ErrNoMasterKey)
	_, err = without.DataKey(ctx, "acme")
	want(t, "a data key without a master key", err, tenant.ErrNoMasterKey)
	if list, err := without.Tenants(ctx); err != nil || len(list) != 1 {
		t.Errorf("a list without a master key: %v, %v", list, err)
	}

	f.another(t, "zeta")
	before, err := f.DataKey(ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	now := tenant.NewMasterKey()
	want(t, "a master key that opens nothing", f.UseMasters(ctx, now), tenant.ErrWrongMasterKey)
	want(t, "the new master key beside the old", f.UseMasters(ctx, now, f.master), nil)
	f.another(t, "early")
	if used, err := f.MasterUses(ctx); err != nil || len(used) != 1 || used[0].ID != f.master.ID() || used[0].DataKeys != 3 {
		t.Errorf("before the change a new data key is under another master key than the others: %+v, %v", used, err)
	}
	old := f.reopen(t, f.master)
	for range 2 { // the second time there is nothing left to do
		if n, err := f.Rewrap(ctx, now); n != 3 || err != nil {
			t.Errorf("rewrap: %d, %v", n, err)
		}
	}
	for what, store := range map[string]*tenant.Store{"both": f.Store, "the new one": f.reopen(t, now)} {
		after, err := store.DataKey(ctx, "acme")
		if err != nil || !bytes.Equal(after.Bytes(), before.Bytes()) || after.ID() != before.ID() {
			t.Errorf("with %s the data key is another one: %v", what, err)
		}
		want(t, what, store.CheckMaster(ctx), nil)
	}
	f.another(t, "late")
	if used, err := f.MasterUses(ctx); err != nil || len(used) != 1 || used[0].ID != now.ID() || used[0].DataKeys != 4 {
		t.Errorf("after the change a new data key is under another master key than the others: %+v, %v", used, err)
	}

	_, err = old.DataKey(ctx, "acme")
	want(t, "the old master key", err, tenant.ErrWrongMasterKey)
	want(t, "a check of the old master key", old.CheckMaster(ctx), tenant.ErrWrongMasterKey)
	_, err = old.Create(ctx, tenant.Tenant{ID: "later"})
	want(t, "a new tenant under the old master key", err, tenant.ErrWrongMasterKey)
	_, err = old.Rewrap(ctx, f.master)
	want(t, "rewrap with the old master key", err, tenant.ErrWrongMasterKey)
	_, err = f.Rewrap(ctx, tenant.MasterKey{})
	want(t, "rewrap to nothing", err, tenant.ErrNoMasterKey)
	want(t, "the end of the old one", f.UseMasters(ctx, now), nil)
	if again, err := f.DataKey(ctx, "acme"); err != nil || again.ID() != before.ID() {
		t.Errorf("after a rewrap that failed: %v", err)
	}
}

// masterKeys are the lines of a file with n master keys.
func masterKeys(n int) (lines string) {
	for range n {
		lines += tenant.NewMasterKey().Text().Reveal() + "\n"
	}
	return lines
}

func TestMasterKeyFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "master.key")
	made, err := tenant.CreateMasterKey(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tenant.CreateMasterKey(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a key file is overwritten: %v", err)
	}
	good, next := made.Text().Reveal(), tenant.NewMasterKey().Text().Reveal()
	for text, want := range map[string][]string{
		"": {good}, next + "\n": {good, next}, "\r\n " + next: {good, next}, good + "\n": {good}, // the same again
	} {
		if err := os.WriteFile(path, []byte(good+"\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := tenant.ReadMasterKeys(path)
		var got []string
		for _, k := range read {
			got = append(got, k.Text().Reveal())
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d keys, %v", len(read), err)
		}
	}
	if runtime.GOOS != "windows" {
		for _, mode := range []fs.FileMode{0o640, 0o604, 0o602, 0o610, 0o777} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			_, err := tenant.ReadMasterKeys(path)
			want(t, mode.String(), err, tenant.ErrInvalid)
		}
	}
	_, err = tenant.ReadMasterKeys(filepath.Dir(path))
	want(t, "a folder", err, tenant.ErrInvalid)
	for _, text := range []string{"", "sthm_", good[5:], good + "0", good[:68], good[:68] + "g", "sth_" + good[4:], strings.Repeat("x", 5000), good + next, good + " x", masterKeys(5)} {
		_, err := tenant.ParseMasterKeys([]byte(text))
		want(t, text, err, tenant.ErrInvalid)
		if err != nil && strings.Contains(err.Error(), good[10:40]) {
			t.Errorf("the error has the key: %v", err)
		}
	}
}

func testErasure(t *testing.T, open opener) {
	f := open(t)
	f.another(t, "zeta")
	ctx := t.Context()
	key, err := f.DataKey(ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	log, err := store.Encrypted(f.log, key, "acme")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"acme/1", "acme/2"} {
		for _, e := range logtest.Finished(id, 3) {
			if err := log.Append(ctx, id, e); err != nil {
				t.Fatal(err)
			}
		}
		want(t, "sync", log.Sync(ctx, id), nil)
	}
	waiting := logtest.Finished("acme/3", 3)[0] // as a queue that takes a run appends it
	want(t, "a run that waits", f.log.Transact(ctx, func(tx eventlog.Tx) error { return tx.Append(waiting.RunID, waiting) }), nil)
	sec := tenant.Secret{Name: "API_KEY", Audience: []string{"example.com"}, Place: tenant.PlaceHeader}
	want(t, "secret", f.SetSecret(ctx, "acme", sec, tenant.NewValue(canary)), nil)
	_, _, err = f.CreateKey(ctx, "acme", "")
	want(t, "key", err, nil)
	_, err = f.SetPolicy(ctx, "acme", "policy", true)
	want(t, "policy", err, nil)

	e, err := f.Erase(ctx, "acme", nil)
	if err != nil || e.Keys != 1 || e.Secrets != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	_, err = f.DataKey(ctx, "acme")
	want(t, "the data key", err, tenant.ErrErased)
	_, err = f.Create(ctx, tenant.Tenant{ID: "acme"})
	want(t, "the id again", err, tenant.ErrExists)
	_, _, err = f.CreateKey(ctx, "acme", "")
	want(t, "a new API key", err, tenant.ErrErased)
	want(t, "a new secret", f.SetSecret(ctx, "acme", sec, tenant.NewValue(canary)), tenant.ErrErased)
	want(t, "resume", f.Resume(ctx, "acme"), tenant.ErrErased)
	r, err := eventlog.CheckRun(ctx, f.log, "acme/1", eventlog.CheckOptions{Strict: true})
	if err != nil || r.Encrypted != r.Events || r.Encrypted == 0 {
		t.Errorf("the chain: %+v, %v", r, err)
	}
	if again, err := f.Erase(ctx, "acme", f.log); err != nil || again.Runs != 3 {
		t.Errorf("with pruning: %+v, %v", again, err)
	}
	_, err = f.Erase(ctx, "nobody", nil)
	want(t, "nobody", err, tenant.ErrNotFound)
	if _, err := f.DataKey(ctx, "zeta"); err != nil {
		t.Errorf("the other tenant: %v", err)
	}
}

// Once a tenant is erased and the file is closed, the wrapped key is not in it, so
// that not even the master key brings it back.
func TestErasureLeavesNoKeyInTheFile(t *testing.T) {
	f := onSQLite(t)
	var wrapped []byte
	err := f.log.View(t.Context(), func(q eventlog.Querier) error {
		return q.Query("SELECT wrapped FROM tenant_data_key", nil, func(r eventlog.Row) error { return r.Scan(&wrapped) })
	})
	if err != nil || len(wrapped) != 60 {
		t.Fatalf("%d bytes, %v", len(wrapped), err)
	}
	if _, err := f.Erase(t.Context(), "acme", nil); err != nil {
		t.Fatal(err)
	}
	want(t, "close", f.log.Close(), nil)
	if found := grep(t, f.dir, wrapped); len(found) > 0 {
		t.Errorf("the wrapped key is in %v", found)
	}
}

// No secret of a tenant is in the files in plain text: nor an API key, nor a
// secret's value, nor the answer to a request.
func TestTheFileHoldsNoSecrets(t *testing.T) {
	f := onSQLite(t)
	ctx := t.Context()
	sec := tenant.Secret{Name: "API_KEY", Audience: []string{"example.com"}, Place: tenant.PlaceBody}
	want(t, "secret", f.SetSecret(ctx, "acme", sec, tenant.NewValue(canary)), nil)
	err := f.log.Transact(ctx, func(tx eventlog.Tx) error {
		_, err := f.Once(tx, "acme", "k", canon.Sum([]byte("request")), []byte(canary), time.Minute)
		return err
	})
	want(t, "once", err, nil)
	_, key, err := f.CreateKey(ctx, "acme", "")
	want(t, "key", err, nil)
	data, err := f.DataKey(ctx, "acme")
	want(t, "data key", err, nil)
	look := func(when string) {
		for what, text := range map[string][]byte{"secret": []byte(canary), "API key": []byte(key.Reveal()[21:]), "data key": data.Bytes(), "master key": []byte(f.master.Text().Reveal()[5:])} {
			if found := grep(t, f.dir, text); len(found) > 0 {
				t.Errorf("%s: the %s is in %v", when, what, found)
			}
		}
	}
	look("while it is open")
	want(t, "close", f.log.Close(), nil)
	look("after it was closed")
	if found := grep(t, f.dir, []byte("example.com")); len(found) == 0 {
		t.Error("the test looks into the wrong files")
	}
}

func grep(t *testing.T, dir string, text []byte) (found []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, text) {
			found = append(found, file.Name())
		}
	}
	return found
}

func TestTenantSecretsAreNotPrinted(t *testing.T) {
	v := tenant.NewValue(canary)
	master := tenant.NewMasterKey()
	secret := master.Text().Reveal()[5:]
	raw := fmt.Sprintf("%d", []byte(secret)[:4])
	held := struct {
		Open   tenant.Value
		hidden tenant.Value
		master tenant.MasterKey
		list   []tenant.Value
		at     *tenant.Value
	}{v, v, master, []tenant.Value{v}, &v}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%10s"} {
		fmt.Fprintf(&out, verb+verb+verb+verb+"\n", v, &v, held, master)
	}
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(handler).Info("x", "v", v, "held", held, "master", master, "list", []tenant.Value{v})
	}
	if err := json.NewEncoder(&out).Encode(map[string]any{"v": v, "held": held}); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(&out, fmt.Errorf("%w: %v", tenant.ErrInvalid, v))
	for _, leak := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary), secret, raw} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("%q is in\n%s", leak, out.String())
		}
	}
	if v.Reveal() != canary || (tenant.Value{}).Reveal() != "" {
		t.Error("a value does not reveal what it has")
	}
}

// A text sealed for a tenant opens only for the same tenant, purpose and binding,
// and never once the tenant is erased.
func testSealedTexts(t *testing.T, open opener) {
	f := open(t)
	f.another(t, "zeta")
	acme, zeta := f.holdings(t, "acme"), f.holdings(t, "zeta")
	sealed, err := acme.Encrypt("job", []byte(canary), "run-1", "x")
	if err != nil || bytes.Contains(sealed, []byte(canary)) {
		t.Fatalf("%q, %v", sealed, err)
	}
	if text, err := acme.Decrypt("job", sealed, "run-1", "x"); err != nil || string(text) != canary {
		t.Errorf("%q, %v", text, err)
	}
	for name, try := range map[string]func() ([]byte, error){
		"another tenant":     func() ([]byte, error) { return zeta.Decrypt("job", sealed, "run-1", "x") },
		"another purpose":    func() ([]byte, error) { return acme.Decrypt("note", sealed, "run-1", "x") },
		"another binding":    func() ([]byte, error) { return acme.Decrypt("job", sealed, "run-2", "x") },
		"parts run as one":   func() ([]byte, error) { return acme.Decrypt("job", sealed, "run-1x") },
		"quotes in a part":   func() ([]byte, error) { return acme.Decrypt("job", sealed, "run-1\"\n\"x") },
		"no binding":         func() ([]byte, error) { return acme.Decrypt("job", sealed) },
		"a text that is cut": func() ([]byte, error) { return acme.Decrypt("job", sealed[:27], "run-1", "x") },
		"no text":            func() ([]byte, error) { return acme.Decrypt("job", nil, "run-1", "x") },
	} {
		if text, err := try(); err == nil || text != nil {
			t.Errorf("%s: it opens: %q", name, text)
		}
	}
	if _, err := f.Erase(t.Context(), "acme", nil); err != nil {
		t.Fatal(err)
	}
	_, err = f.Holdings(t.Context(), "acme")
	want(t, "after the erasure", err, tenant.ErrErased)
}
