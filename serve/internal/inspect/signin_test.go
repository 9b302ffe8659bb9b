package inspect_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/inspect"
)

func TestWebViewSignIn(t *testing.T) {
	log := store.Memory()
	record(t, log, "R", `{"city":"Oslo"}`)
	const token = "a token & more"
	b := open(t, inspect.Config{Scope: inspect.Only(viewOf(log, ""), token), Prefix: "/inspect"})
	code, body := b.get("/inspect/runs/R?at=1")
	if code != http.StatusUnauthorized || !strings.Contains(body, `name="to" value="/inspect/runs/R?at=1"`) {
		t.Fatalf("without a token: %d, %s", code, body)
	}
	form := url.Values{}
	form.Set("token", "wrong")
	if code, body := b.post("/inspect/sign-in", form); code != http.StatusUnauthorized || !strings.Contains(body, "The token is not valid") {
		t.Errorf("a wrong token: %d", code)
	}
	form.Set("token", token)
	form.Set("to", "/inspect/runs/R?at=1")
	if code, body := b.post("/inspect/sign-in", form); code != http.StatusOK || !strings.Contains(body, "weather") {
		t.Fatalf("the token: %d, %s", code, body)
	}
	u, _ := url.Parse(b.base + "/inspect/")
	for _, c := range b.client.Jar.Cookies(u) {
		if strings.Contains(c.Value, token) {
			t.Error("the token is in a cookie")
		}
	}
	if code, _ := b.post("/inspect/sign-out", form); code != http.StatusOK {
		t.Errorf("signing out: %d", code)
	}
	if code, _ := b.get("/inspect/"); code != http.StatusUnauthorized {
		t.Errorf("after signing out: %d", code)
	}
}

// TestWebViewsShareAHost signs in to two views that differ in the port only: one does not
// sign the other out, though a browser has the same cookies for both.
func TestWebViewsShareAHost(t *testing.T) {
	view := viewOf(store.Memory(), "")
	first, second := open(t, inspect.Config{Scope: inspect.Only(view, "1")}), open(t, inspect.Config{Scope: inspect.Only(view, "2")})
	second.client = first.client
	for token, b := range map[string]*browser{"1": first, "2": second} {
		form := url.Values{}
		form.Set("token", token)
		if code, _ := b.post("/sign-in", form); code != http.StatusOK {
			t.Fatalf("to sign in with %s: %d", token, code)
		}
	}
	for _, b := range []*browser{first, second} {
		if code, _ := b.get("/"); code != http.StatusOK {
			t.Errorf("%s: %d", b.base, code)
		}
	}
}

// TestCookiesOfEncryptedConnections: a browser sends them only over encrypted connections,
// also if a proxy encrypts.
func TestCookiesOfEncryptedConnections(t *testing.T) {
	s, err := inspect.New(inspect.Config{Scope: inspect.Only(viewOf(store.Memory(), ""), "t"), Origins: []string{"https://a.example", "http://b.example"}})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{"http://a.example": true, "https://a.example": true, "http://b.example": false} {
		w := httptest.NewRecorder()
		form := httptest.NewRequest("POST", address+"/sign-in", strings.NewReader("token=t"))
		form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		s.ServeHTTP(w, form)
		cookies := w.Result().Cookies()
		if len(cookies) == 0 || cookies[0].Secure != want {
			t.Errorf("%s: %v", address, cookies)
		}
	}
}

func TestWebViewSignInRedirects(t *testing.T) {
	b := open(t, inspect.Config{Scope: inspect.Only(eventview.View{Log: store.Memory()}, "t")})
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	form := url.Values{}
	form.Set("token", "t")
	for to, want := range map[string]string{
		"/runs/R?at=1": "/runs/R?at=1", "//evil.example/": "/", `/\evil.example/`: "/", "https://evil.example/": "/", "/\t/evil.example": "/", "": "/",
	} {
		form.Set("to", to)
		resp, err := b.client.PostForm(b.base+"/sign-in", form)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Location"); got != want {
			t.Errorf("%q leads to %q, want %q", to, got, want)
		}
	}
}
