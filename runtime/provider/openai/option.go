package openai

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"

	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

const (
	defaultBaseURL = "https://api.openai.com"
	defaultVersion = "v1"
	defaultID      = "openai"
)

// Option changes what [New] makes. Of two that set the same, the later counts.
type Option func(*settings)

type settings struct {
	key, base, organization, id string
	version                     *string // nil: that of the URL
	client                      *http.Client
	dialect                     *dialect // nil: that of the host
}

// WithAPIKey sets the key. api.openai.com needs one, other servers may not.
func WithAPIKey(key string) Option { return func(s *settings) { s.key = key } }

// WithBaseURL sets the address of a server, with the path that stands before
// "/chat/completions". An address without a path gets the API version as its
// path. The default is "https://api.openai.com".
func WithBaseURL(url string) Option { return func(s *settings) { s.base = url } }

// WithOrganization sets the header OpenAI-Organization.
func WithOrganization(org string) Option { return func(s *settings) { s.organization = org } }

// WithAPIVersion sets the last part of the path of the base URL, in place of the
// version that is there, if one is. For Azure it is the date in the query. The
// default is the version in the base URL, or "v1". With "" the base URL is used
// as it is.
func WithAPIVersion(version string) Option { return func(s *settings) { s.version = &version } }

// WithProviderID sets the id that the log names the provider by. The default is
// "openai".
func WithProviderID(id string) Option { return func(s *settings) { s.id = id } }

// WithHTTPClient sets the client for all requests. The default, and nil, is
// [http.DefaultClient]. Redirections are followed only by a client that has a
// CheckRedirect.
func WithHTTPClient(c *http.Client) Option { return func(s *settings) { s.client = c } }

// client is a Provider.
type client struct {
	info         provider.Info
	endpoint     url.URL
	key          string
	organization string
	dialect      dialect
	api          converse.API
}

// New returns a Provider. It fails without a key for api.openai.com, and when an
// option cannot be right.
func New(opts ...Option) (provider.Provider, error) {
	s := settings{base: defaultBaseURL, id: defaultID}
	for _, o := range opts {
		o(&s)
	}
	base, err := parseBase(s.base)
	if err != nil {
		return nil, err
	}
	switch {
	case s.key == "" && base.Hostname() == "api.openai.com":
		return nil, errors.New("openai: no API key: api.openai.com needs WithAPIKey")
	case strings.ContainsFunc(s.key, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return nil, errors.New("openai: the API key has white space in it")
	case s.id == "":
		return nil, errors.New("openai: the provider ID is empty")
	}
	d := dialectOf(base.Hostname())
	if s.dialect != nil {
		d = *s.dialect
	}
	version := s.versionName(base.Path)
	return &client{
		info:     provider.Info{ID: s.id, APIVersion: version},
		endpoint: d.locate(base, s.version), dialect: d.at(version),
		key: s.key, organization: s.organization,
		api: converse.API{Name: s.id, Key: s.key, HTTP: converse.Client(s.client), Fault: refusal, RequestID: requestID, Untyped: true},
	}, nil
}

// versionName is what the log calls the version.
func (s *settings) versionName(path string) string {
	if s.version != nil {
		return cmp.Or(*s.version, versionOf(path), defaultVersion)
	}
	return cmp.Or(versionOf(path), defaultVersion)
}

func parseBase(base string) (*url.URL, error) {
	u, err := url.Parse(base)
	if parsing := new(url.Error); errors.As(err, &parsing) {
		err = parsing.Err // without the URL, which may have a password in it
	}
	if err != nil {
		return nil, fmt.Errorf("openai: the base URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("openai: the base URL %q is not like https://host/v1", u.Redacted())
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = ""
	return u, nil
}

var versionPattern = regexp.MustCompile(`^v\d+(alpha|beta)?\d*$`)

// versionOf returns the last part of a path if that is a version.
func versionOf(p string) string {
	if last := path.Base(p); versionPattern.MatchString(last) {
		return last
	}
	return ""
}

// Info implements [provider.Provider].
func (c *client) Info() provider.Info { return c.info }

// Capabilities implements [provider.Capabler]. Whether there is reasoning depends
// on the model.
func (c *client) Capabilities() provider.Capabilities {
	return provider.Capabilities{Tools: true, ToolChoice: true, Reasoning: true, StopSequences: true, RequestID: true}
}
