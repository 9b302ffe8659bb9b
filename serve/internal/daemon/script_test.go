package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
)

// TestRequests runs testdata/*.http, the specification of the API, each against a
// daemon of its own. A script is a list of exchanges:
//
//	# Prose says why.
//	POST /api/v1/runs as alice
//	Idempotency-Key: once
//	{"tool":"greet"}
//	= 202
//	= header Location ^/api/v1/runs/
//	= let RUN run_id
//
// After the request come its headers, then its body: one line of JSON, "module
// NAME" for one of testModules, "yaml TEXT" with \n for the ends of lines, or "bytes
// N" for so many of them. What is expected follows, of which the status comes first:
//
//	= header NAME PATTERN   a header matches; an empty pattern: it is absent
//	= problem NAME          the body is a problem of that type
//	= json PATH VALUE       a part of the body is this
//	= match PATH PATTERN    a part of the body matches
//	= absent PATH           there is no such part
//	= body PATTERN          the body matches
//	= let NAME PATH         $NAME is that part from now on
//	= keep NAME HEADER      $NAME is that header from now on
//	= meanwhile REQUEST     a request, without a body, that is made while the answer
//	                        comes, before its body is read
//
// A line "hold TENANT" has the operator set an empty policy. A line "restart" stops the daemon and starts another one on the database. Every
// exchange is held against spec/openapi.yaml.
func TestRequests(t *testing.T) {
	runScripts(t, func(t *testing.T) *world { return newWorld(t, signing) })
}

// TestRequestsOnPostgres runs the same scripts against daemons on a server.
func TestRequestsOnPostgres(t *testing.T) {
	server := pgtest.Start(t)
	runScripts(t, func(t *testing.T) *world { return newWorldOn(t, server.Database(t), signing) })
}

// signing has a daemon sign receipts and commit to calls.
func signing(c *daemon.Config, _ *queue.Config) {
	key, err := seal.NewKey("example.com/runs")
	if err != nil {
		panic(err)
	}
	c.Receipts = &receipt.Issuer{Key: key, Commits: true}
}

func runScripts(t *testing.T, start func(*testing.T) *world) {
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".http"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &httpScript{t: t, file: file, world: start(t), vars: map[string]string{}, contract: loadContract(t)}
			for i, line := range strings.Split(string(text), "\n") {
				s.line = i + 1
				s.read(line)
			}
			s.exchange()
		})
	}
}

// httpScript is a script that is being run.
type httpScript struct {
	t        *testing.T
	file     string
	line     int
	world    *world
	vars     map[string]string
	contract *contract

	// The exchange that is being read.
	at      int
	method  string
	path    string
	who     string
	headers http.Header
	body    []byte
	expect  []string
}

func (s *httpScript) failf(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("%s:%d: %s", s.file, s.at, fmt.Sprintf(format, args...))
}

var requestLine = regexp.MustCompile(`^(GET|POST|DELETE|PUT|HEAD) (\S+)(?: as (\S+))?$`)

// read takes one line.
func (s *httpScript) read(line string) {
	if requestLine.MatchString(line) {
		s.exchange() // which may set what the line has in it
	}
	line = os.Expand(line, func(name string) string {
		if v, ok := s.vars[name]; ok {
			return v
		}
		return "$" + name
	})
	switch request := requestLine.FindStringSubmatch(line); {
	case strings.HasPrefix(line, "#"), strings.TrimSpace(line) == "":
		if s.expect != nil {
			s.exchange()
		}
	case line == "restart":
		s.exchange()
		s.world.stop()
		s.world.start()
	case strings.HasPrefix(line, "hold "):
		s.exchange()
		if _, err := s.world.tenants.SetPolicy(s.t.Context(), line[len("hold "):], "version: \"1.0\"\n", true); err != nil {
			s.t.Fatal(err)
		}
	case request != nil:
		s.at, s.method, s.path, s.who, s.headers = s.line, request[1], request[2], request[3], http.Header{}
	case strings.HasPrefix(line, "= "):
		s.expect = append(s.expect, line[2:])
	case s.body == nil && regexp.MustCompile(`^[A-Za-z-]+: `).MatchString(line):
		name, value, _ := strings.Cut(line, ": ")
		s.headers.Add(name, value)
	default:
		s.body = s.content(line)
	}
}

// content returns the body that a line stands for.
func (s *httpScript) content(line string) []byte {
	kind, arg, _ := strings.Cut(line, " ")
	switch kind {
	case "module":
		if build, ok := testModules[arg]; ok {
			s.headers.Set("Content-Type", orElse(s.headers.Get("Content-Type"), "application/wasm"))
			return build()
		}
	case "yaml":
		s.headers.Set("Content-Type", orElse(s.headers.Get("Content-Type"), "application/yaml"))
		return []byte(strings.ReplaceAll(arg, `\n`, "\n"))
	case "bytes":
		if n, err := strconv.Atoi(arg); err == nil {
			return bytes.Repeat([]byte(" "), n)
		}
	}
	s.headers.Set("Content-Type", orElse(s.headers.Get("Content-Type"), "application/json"))
	return []byte(line)
}

func orElse(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// meanwhile makes the request of a line that has one.
func (s *httpScript) meanwhile(line string) bool {
	line, ok := strings.CutPrefix(line, "meanwhile ")
	if !ok {
		return false
	}
	s.t.Helper()
	request := requestLine.FindStringSubmatch(line)
	if request == nil {
		s.t.Fatalf("%s:%d: %q is no request", s.file, s.at, line)
	}
	if answer := s.world.do(request[3], request[1], request[2], "", nil); answer.Code >= http.StatusBadRequest {
		s.failf("%s: %d %s", line, answer.Code, answer.Body)
	}
	return true
}

// exchange makes the request that was read and compares the answer.
func (s *httpScript) exchange() {
	if s.method == "" {
		return
	}
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), s.method, s.world.url+s.path, bytes.NewReader(s.body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = s.headers
	if key := orElse(s.world.keys[s.who], s.who); key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.t.Fatalf("%s:%d: %v", s.file, s.at, err)
	}
	defer answer.Body.Close()
	s.expect = slices.DeleteFunc(s.expect, s.meanwhile)
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatalf("%s:%d: %v", s.file, s.at, err)
	}
	for _, line := range s.expect {
		s.compare(line, answer, body)
	}
	if err := s.contract.check(r, s.body, answer, body); err != nil {
		s.failf("not as the contract has it: %v\n%s", err, body)
	}
	s.method, s.body, s.expect = "", nil, nil
}

// compare holds an answer against one line of what is expected.
func (s *httpScript) compare(line string, answer *http.Response, body []byte) {
	s.t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	path, value, _ := strings.Cut(rest, " ")
	var doc any
	isJSON := json.Unmarshal(body, &doc) == nil
	part, found := lookUp(doc, path)
	switch word {
	case "header":
		if got := answer.Header.Get(path); value == "" && got != "" || !matches(value, got) {
			s.failf("header %s is %q, want %s", path, got, value)
		}
	case "problem":
		kind, _ := lookUp(doc, "type")
		if got, _ := kind.(string); !strings.HasSuffix(got, "#"+rest) || answer.Header.Get("Content-Type") != "application/problem+json" {
			s.failf("got %s %s, want problem %s", answer.Status, body, rest)
		}
	case "json":
		var want any
		if err := json.Unmarshal([]byte(value), &want); err != nil || !isJSON || !found || !reflect.DeepEqual(part, want) {
			s.failf("%s is %v, want %s, in %s", path, part, value, body)
		}
	case "match":
		if !found || !matches(value, fmt.Sprint(part)) {
			s.failf("%s is %v, want %s, in %s", path, part, value, body)
		}
	case "absent":
		if found {
			s.failf("%s is %v, want nothing", path, part)
		}
	case "body":
		if !matches(rest, string(body)) {
			s.failf("the body is %q, want %s", body, rest)
		}
	case "let":
		name, path, _ := strings.Cut(rest, " ")
		part, _ := lookUp(doc, path)
		if n, is := part.(float64); is {
			part = strconv.FormatFloat(n, 'f', -1, 64)
		}
		s.vars[name] = fmt.Sprint(part)
	case "keep":
		s.vars[path] = answer.Header.Get(value)
	default:
		if fmt.Sprint(answer.StatusCode) != line {
			s.failf("got %s, want %s: %s", answer.Status, line, body)
		}
	}
}

func matches(pattern, text string) bool {
	return regexp.MustCompile(`(?s)` + pattern).MatchString(text)
}

// lookUp returns the part of a document at a path such as items.0.name.
func lookUp(doc any, path string) (any, bool) {
	for _, name := range strings.Split(path, ".") {
		switch d := doc.(type) {
		case map[string]any:
			part, ok := d[name]
			if !ok {
				return nil, false
			}
			doc = part
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(d) {
				return nil, false
			}
			doc = d[i]
		default:
			return nil, false
		}
	}
	return doc, true
}
