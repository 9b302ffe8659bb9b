//go:build !js

package mcptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/runtime/egress"
)

// oauthTime bounds one request to an authorization server.
const oauthTime = 30 * time.Second

// authorizer sends the OAuth token of a file to a server, and refreshes it. With a Login, which
// is for one connection, it obtains a new token if the server demands one. It is the
// [auth.OAuthHandler] of the SDK.
type authorizer struct {
	endpoint string
	file     string
	login    *Login // nil if there is no user to ask
	http     *http.Client
	origin   *egress.Origin // decides where the documents of servers may lead; nil for a transport of the caller

	mu     sync.Mutex
	grant  grant    // as last read or written; mu guards it and the fields below
	hidden []string // all tokens, codes and client secrets so far
	asked  bool     // the user has been asked
	failed error    // the result of asking
}

// grant is the content of the file: an access token, and how to refresh it.
type grant struct {
	Config *oauth2.Config
	Token  *oauth2.Token
}

// newAuthorizer returns an authorizer for an endpoint, whose origin is nil if o has a transport.
func newAuthorizer(endpoint string, o Options, origin *egress.Origin) *authorizer {
	transport := o.HTTP
	if origin != nil {
		transport = origin.Linked()
	}
	a := &authorizer{endpoint: endpoint, file: o.Tokens, login: o.Login, origin: origin, http: &http.Client{
		Transport: transport, Timeout: oauthTime,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if via[0].Method != http.MethodGet || len(via) > 5 {
				return errors.New("refused to follow a redirect with codes or tokens")
			}
			return nil
		},
	}}
	if o.Login != nil {
		a.hidden = []string{o.Login.ClientSecret}
	}
	return a
}

// secrets returns the texts that no message may contain.
func (a *authorizer) secrets() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.hidden)
}

// keep sets the current grant. The caller holds mu.
func (a *authorizer) keep(g grant) {
	a.grant = g
	for _, secret := range []string{g.Token.AccessToken, g.Token.RefreshToken, g.Config.ClientSecret} {
		if secret != "" && !slices.Contains(a.hidden, secret) {
			a.hidden = append(a.hidden, secret)
		}
	}
}

// write puts a grant into the file, which only its owner may read. The caller holds mu.
func (a *authorizer) write(g grant) error {
	a.keep(g)
	doc, err := json.Marshal(g)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(a.file), 0o700)
	}
	if err == nil {
		err = keyfile.Replace(a.file, doc, 0o600)
	}
	return err
}

// TokenSource implements [auth.OAuthHandler].
func (a *authorizer) TokenSource(context.Context) (oauth2.TokenSource, error) { return a, nil }

// Token implements [oauth2.TokenSource]. It returns nil without a token.
func (a *authorizer) Token() (*oauth2.Token, error) { return a.token("") }

// token returns a valid token other than the rejected one. Several processes may share the
// file: only one of them refreshes the token, because a refresh token may be valid only once.
func (a *authorizer) token(rejected string) (*oauth2.Token, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	usable := func() bool { return a.grant.Token.Valid() && a.grant.Token.AccessToken != rejected }
	if usable() {
		return a.grant.Token, nil
	}
	if _, err := os.Stat(a.file); a.login != nil || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	unlock, err := keyfile.Lock(a.file + ".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	var g grant
	doc, err := keyfile.ReadFile(a.file, keyfile.MaxBytes)
	if err == nil {
		err = json.Unmarshal(doc, &g)
	}
	if err == nil && (g.Config == nil || g.Token == nil) {
		err = errors.New("it has no token")
	}
	if err != nil {
		return nil, fmt.Errorf("the file %s, which has the token for the server, cannot be read: %w", a.file, err)
	}
	a.keep(g)
	if usable() {
		return g.Token, nil
	}
	if g.Token.RefreshToken == "" {
		return nil, a.refused("the token has expired")
	}
	old := *g.Token
	old.Expiry = time.Unix(1, 0)
	next, err := g.Config.TokenSource(context.WithValue(context.Background(), oauth2.HTTPClient, a.http), &old).Token()
	if said, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		if said.Response.StatusCode < 500 {
			return nil, a.refused("the token was not refreshed: " + answered(said))
		}
		err = errors.New(answered(said))
	}
	if err == nil {
		err = a.write(grant{g.Config, next})
	}
	if err != nil {
		return nil, fmt.Errorf("the token for the server cannot be refreshed: %w", err)
	}
	return next, nil
}

func (a *authorizer) refused(why string) error { return &loginError{why, a.endpoint} }

// answered returns the error for an answer of an authorization server. It omits the body, which may
// contain a secret.
func answered(e *oauth2.RetrieveError) string {
	text := "the authorization server answered " + e.Response.Status
	if e.ErrorCode != "" {
		text += strings.TrimRight(fmt.Sprintf(", %.100s: %.300s", e.ErrorCode, e.ErrorDescription), ": ")
	}
	return text
}

// Authorize implements [auth.OAuthHandler]: the server has answered a request with 401 or 403.
func (a *authorizer) Authorize(ctx context.Context, r *http.Request, resp *http.Response) error {
	if a.login == nil {
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusForbidden {
			return nil // a new token would not help
		}
		_, sent, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		t, err := a.token(sent)
		if t == nil && err == nil {
			err = a.refused("there is no token for it")
		}
		return err
	}
	a.mu.Lock()
	asked, failed := a.asked, a.failed
	a.asked = true
	a.mu.Unlock()
	if asked {
		resp.Body.Close()
		return cmp.Or(failed, errors.New("the server rejects the token that its authorization server has just issued"))
	}
	err := a.ask(ctx, r, resp)
	if said, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		err = errors.New(answered(said))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = err
	return err
}

// ask runs the authorization code flow of OAuth, with PKCE, and stores the token.
func (a *authorizer) ask(ctx context.Context, r *http.Request, resp *http.Response) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	config := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL: fmt.Sprintf("http://%s/callback", l.Addr()),
		AuthorizationCodeFetcher: func(ctx context.Context, u *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			return a.redirected(ctx, l, u.URL)
		},
		RequestRefreshToken:   true,
		AcceptUnadvertisedIss: true, // if it is the right one
		Client:                a.http,
		NewTokenSource: func(_ context.Context, c *oauth2.Config, t *oauth2.Token) (oauth2.TokenSource, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			return oauth2.StaticTokenSource(t), a.write(grant{c, t})
		},
	}
	if a.login.ClientID == "" {
		config.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: "starling-host", RedirectURIs: []string{config.RedirectURL}, TokenEndpointAuthMethod: "none",
			GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"},
		}}
	} else {
		config.PreregisteredClient = &oauthex.ClientCredentials{ClientID: a.login.ClientID}
		if secret := a.login.ClientSecret; secret != "" {
			config.PreregisteredClient.ClientSecretAuth = &oauthex.ClientSecretAuth{ClientSecret: secret}
		}
	}
	handler, err := auth.NewAuthorizationCodeHandler(config)
	if err != nil {
		return err
	}
	return handler.Authorize(ctx, r, resp)
}

// redirected shows the user an address, and waits for the browser's redirect to the
// listener. It refuses requests without the state of this login.
func (a *authorizer) redirected(ctx context.Context, l net.Listener, address string) (*auth.AuthorizationResult, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if a.origin != nil {
		if err := a.origin.Check(ctx, u); err != nil {
			return nil, err
		}
	}
	state := u.Query().Get("state")
	got := make(chan url.Values, 1)
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/callback" || q.Get("state") != state {
			http.Error(w, "This is not the login that starling-host waits for.", http.StatusBadRequest)
			return
		}
		await.Offer(got, q)
		fmt.Fprintln(w, "starling-host has the answer. You can close this page.")
	})}
	go func() { _ = server.Serve(l) }()
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // time for the browser to read the page
		defer cancel()
		_ = server.Shutdown(ending)
		_ = server.Close()
	}()
	a.login.Show(address)
	select {
	case q := <-got:
		if why := q.Get("error"); why != "" {
			return nil, fmt.Errorf("the authorization server refused: %.100s %.300s", why, q.Get("error_description"))
		}
		a.mu.Lock()
		a.hidden = append(a.hidden, q.Get("code"))
		a.mu.Unlock()
		return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
	case <-ctx.Done():
		return nil, errors.New("the browser was not redirected here in time")
	}
}
