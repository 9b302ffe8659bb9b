package daemon_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/spec"
)

// contract is spec/openapi.yaml.
type contract struct {
	doc    *openapi3.T
	router routers.Router
}

func loadContract(t *testing.T) *contract {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(spec.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &contract{doc, router}
}

// check holds an exchange against the contract. Of a request that was refused only
// the answer matters, and of a path that is not there nothing.
func (c *contract) check(r *http.Request, sent []byte, answer *http.Response, body []byte) error {
	bare := r.Clone(context.Background())
	bare.URL.Host, bare.URL.Scheme, bare.Host = "", "", ""
	bare.Body = io.NopCloser(bytes.NewReader(sent))
	route, params, err := c.router.FindRoute(bare)
	if err != nil {
		return nil
	}
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}
	in := &openapi3filter.RequestValidationInput{Request: bare, PathParams: params, Route: route, Options: options}
	if answer.StatusCode < 400 {
		options.ExcludeRequestBody = bare.Header.Get("Content-Type") == "application/wasm"
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			return err
		}
	}
	kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
	options.ExcludeResponseBody = !strings.HasSuffix(kind, "json") || kind == "application/x-ndjson"
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: answer.StatusCode, Header: answer.Header, Body: io.NopCloser(bytes.NewReader(body)), Options: options,
	})
}

// TestTheContractHasAllRoutes: neither is there a route, or a parameter of one, that
// nobody promised, nor a promise that is not kept.
func TestTheContractHasAllRoutes(t *testing.T) {
	c := loadContract(t)
	var promised, served []string
	for path, item := range c.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			var query []string
			for _, p := range operation.Parameters {
				if p.Value.In == openapi3.ParameterInQuery {
					query = append(query, p.Value.Name)
				}
			}
			promised = append(promised, asked(method+" "+path, query))
		}
	}
	for _, r := range daemon.Routes() {
		if r.Method != "" { // what is mounted has a contract of its own
			served = append(served, asked(strings.TrimSuffix(r.Pattern(), "{$}"), r.Query))
		}
	}
	slices.Sort(promised)
	slices.Sort(served)
	if !slices.Equal(promised, served) {
		t.Errorf("promised\n%s\nserved\n%s", strings.Join(promised, "\n"), strings.Join(served, "\n"))
	}
}

// asked is a route with the names of its parameters.
func asked(pattern string, query []string) string {
	slices.Sort(query)
	return pattern + "?" + strings.Join(query, "&")
}

// TestProblemsAreExplained holds the types of problems against the contract and
// against the document that they lead to.
func TestProblemsAreExplained(t *testing.T) {
	c := loadContract(t)
	var promised []string
	for _, v := range c.doc.Components.Schemas["Problem"].Value.Properties["type"].Value.Enum {
		promised = append(promised, v.(string))
	}
	types := daemon.ProblemTypes()
	if !slices.Equal(promised, types) {
		t.Errorf("promised\n%s\nused\n%s", strings.Join(promised, "\n"), strings.Join(types, "\n"))
	}
	text, err := os.ReadFile("../../../docs/problems.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, uri := range types {
		_, name, _ := strings.Cut(uri, "#")
		if !strings.Contains(string(text), "\n## "+name+"\n") {
			t.Errorf("docs/problems.md has no section %q", name)
		}
	}
}

// TestClientsCanBeGenerated keeps apart what becomes types of one name in Go and other
// languages.
func TestClientsCanBeGenerated(t *testing.T) {
	components := loadContract(t).doc.Components
	for name := range components.Parameters {
		if components.Schemas[name] != nil {
			t.Errorf("%s is the name of a parameter and of a schema", name)
		}
	}
}

// TestIntegersHaveAWidth: without a format some generators take 32 bits, which neither the
// time of an event fits nor the fuel of a call.
func TestIntegersHaveAWidth(t *testing.T) {
	doc := loadContract(t).doc
	for name, schema := range doc.Components.Schemas {
		for _, bad := range unboundedIntegers(schema) {
			t.Errorf("%s%s is an integer with neither a format nor a maximum", name, bad)
		}
	}
}

// unboundedIntegers returns the paths of those in a schema and what is written in it.
func unboundedIntegers(ref *openapi3.SchemaRef) (paths []string) {
	if ref == nil || ref.Value == nil {
		return nil
	}
	s := ref.Value
	if s.Type.Is("integer") && s.Format == "" && s.Max == nil {
		return []string{""}
	}
	for name, p := range s.Properties {
		for _, path := range unboundedIntegers(p) {
			paths = append(paths, "."+name+path)
		}
	}
	for _, part := range append(slices.Clone(s.AllOf), s.Items) {
		paths = append(paths, unboundedIntegers(part)...)
	}
	return paths
}
