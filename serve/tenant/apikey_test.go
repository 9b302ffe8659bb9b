package tenant_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/serve/tenant"
)

func testKeysOpenOneTenant(t *testing.T, open opener) {
	f := open(t)
	f.another(t, "zeta")
	k, key, err := f.CreateKey(t.Context(), "acme", "laptop")
	if err != nil {
		t.Fatal(err)
	}
	text := key.Reveal()
	if !strings.HasPrefix(text, "sth_"+k.ID+"_") || len(text) != 73 {
		t.Errorf("a key has the form %d %q", len(text), text[:20])
	}
	who, err := f.Authenticate(t.Context(), text)
	if err != nil || who.ID != "acme" {
		t.Errorf("%+v, %v", who, err)
	}
	_, other, err := f.CreateKey(t.Context(), "zeta", "")
	if err != nil {
		t.Fatal(err)
	}
	mixed := text[:21] + other.Reveal()[21:] // the name of one key with the proof of the other
	for _, bad := range []string{"", "sth_", text[:72], text + "a", strings.ToUpper(text), "Sth_" + text[4:], " " + text, mixed,
		text[:72] + "!", strings.Repeat("s", 73), text[:20] + "x" + text[21:], strings.Repeat("x", 1<<20)} {
		if _, err := f.Authenticate(t.Context(), bad); err != tenant.ErrUnauthorized {
			t.Errorf("%.90q: %v", bad, err)
		}
	}
}

// Whatever is wrong with a key, the answer is the same to the byte.
func testWhatIsWrongWithAKeyIsNotSaid(t *testing.T, open opener) {
	f := open(t)
	ctx := t.Context()
	issue := func(id string) (tenant.APIKey, string) {
		f.another(t, id)
		k, key, err := f.CreateKey(ctx, id, "")
		if err != nil {
			t.Fatal(err)
		}
		return k, key.Reveal()
	}
	revoked, revokedText := issue("revoked")
	want(t, "revoke", f.RevokeKey(ctx, "revoked", revoked.ID), nil)
	want(t, "revoke again", f.RevokeKey(ctx, "revoked", revoked.ID), nil)
	_, suspended := issue("suspended")
	want(t, "suspend", f.Suspend(ctx, "suspended"), nil)
	_, erased := issue("erased")
	if _, err := f.Erase(ctx, "erased", nil); err != nil {
		t.Fatal(err)
	}
	_, expired := issue("expired")
	if _, _, err := f.RotateKey(ctx, "expired", "", 0); err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]string{"revoked": revokedText, "suspended": suspended, "erased": erased, "expired": expired, "unknown": "sth_" + strings.Repeat("a", 16) + "_" + strings.Repeat("a", 52)} {
		if who, err := f.Authenticate(ctx, key); err != tenant.ErrUnauthorized || !cmp.Equal(who, tenant.Tenant{}) {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
	want(t, "another tenant's key", f.RevokeKey(ctx, "acme", revoked.ID), tenant.ErrNotFound)
	want(t, "resume", f.Resume(ctx, "suspended"), nil)
	if _, err := f.Authenticate(ctx, suspended); err != nil {
		t.Errorf("after resume: %v", err)
	}
}

// testTheDerivedKey checks that it is the same for every process, also once the data keys
// are under another master key, and that it works again after it was revoked or has ended.
func testTheDerivedKey(t *testing.T, open opener) {
	f := open(t)
	ctx := t.Context()
	first, err := f.DerivedKey(ctx, "acme", "first")
	if err != nil {
		t.Fatal(err)
	}
	f.another(t, "other")
	other, err := f.DerivedKey(ctx, "other", "")
	if err != nil || other.Reveal() == first.Reveal() {
		t.Errorf("two tenants have one key: %v", err)
	}
	keys, err := f.Keys(ctx, "acme")
	if err != nil || len(keys) != 1 {
		t.Fatalf("%+v, %v", keys, err)
	}
	next := tenant.NewMasterKey()
	for name, change := range map[string]func() error{
		"nothing": func() error { return nil },
		"revoke":  func() error { return f.RevokeKey(ctx, "acme", keys[0].ID) },
		"rotate":  func() error { _, _, err := f.RotateKey(ctx, "acme", "", 0); return err },
		"rewrap": func() error {
			_, err := f.Rewrap(ctx, next)
			f.Store = f.reopen(t, next)
			return err
		},
	} {
		if err := change(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := f.DerivedKey(ctx, "acme", "again")
		if err != nil || again.Reveal() != first.Reveal() {
			t.Errorf("%s: another key: %v", name, err)
		}
		if who, err := f.Authenticate(ctx, first.Reveal()); err != nil || who.ID != "acme" {
			t.Errorf("%s: %v, %v", name, who, err)
		}
	}
}

func testRotation(t *testing.T, open opener) {
	f := open(t)
	ctx := t.Context()
	_, old, err := f.CreateKey(ctx, "acme", "old")
	if err != nil {
		t.Fatal(err)
	}
	_, now, err := f.RotateKey(ctx, "acme", "new", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	works := func(key tenant.Value) bool { _, err := f.Authenticate(ctx, key.Reveal()); return err == nil }
	if !works(old) || !works(now) {
		t.Error("within the grace period both keys work")
	}
	f.clock.at = f.clock.at.Add(time.Hour - 1)
	_, third, err := f.RotateKey(ctx, "acme", "third", time.Hour)
	if err != nil || !works(old) {
		t.Errorf("just before its end: %v", err)
	}
	f.clock.at = f.clock.at.Add(1)
	if works(old) || !works(now) || !works(third) {
		t.Error("a second rotation has changed the end of the first key")
	}
	keys, err := f.Keys(ctx, "acme")
	if err != nil || len(keys) != 3 || keys[0].Label != "third" {
		t.Errorf("%+v, %v", keys, err)
	}
	for _, k := range keys {
		if k.Valid(f.clock.at) != (k.Label != "old") {
			t.Errorf("%+v", k)
		}
	}
	_, _, err = f.CreateKey(ctx, "nobody", "")
	want(t, "a key of nobody", err, tenant.ErrNotFound)
	for range 98 {
		if _, _, err = f.CreateKey(ctx, "acme", ""); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err = f.CreateKey(ctx, "acme", "")
	want(t, "the hundred and first valid key", err, tenant.ErrInvalid)
}
