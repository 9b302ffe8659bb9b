package python_test

import (
	"compress/gzip"
	"compress/zlib"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/policy"
	toolkind "github.com/starling-host/starling/runtime/tool"
)

// likeHTTPBin answers as httpbin does, to the requests of the tests of requests.
func likeHTTPBin() http.Handler {
	mux := http.NewServeMux()
	redirect := func(path func(n int) string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.PathValue("n"))
			to := "/get"
			if n > 1 {
				to = path(n - 1)
			}
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
		}
	}
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		headers := map[string]string{}
		for name, values := range r.Header {
			headers[name] = strings.Join(values, ",")
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"headers": headers, "url": r.URL.String(), "data": string(body)})
	}
	mux.HandleFunc("/redirect/{n}", redirect(func(n int) string { return fmt.Sprint("/redirect/", n) }))
	mux.HandleFunc("/relative-redirect/{n}", redirect(func(n int) string { return fmt.Sprint("/relative-redirect/", n) }))
	mux.HandleFunc("/redirect-to", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		status, err := strconv.Atoi(r.Form.Get("status_code"))
		if err != nil {
			status = http.StatusFound
		}
		w.Header().Set("Location", r.Form.Get("url"))
		w.WriteHeader(status)
	})
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		if code/100 == 3 {
			w.Header().Set("Location", "/redirect/1")
		}
		w.WriteHeader(code)
	})
	mux.HandleFunc("/response-headers", func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.URL.Query() {
			w.Header()[http.CanonicalHeaderKey(name)] = values
		}
	})
	mux.HandleFunc("/cookies/set", func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.URL.Query() {
			w.Header().Add("Set-Cookie", name+"="+values[0]+"; Path=/")
		}
		w.Header().Set("Location", "/cookies")
		w.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("/cookies", func(w http.ResponseWriter, r *http.Request) {
		cookies := map[string]string{}
		for _, c := range r.Cookies() {
			cookies[c.Name] = c.Value
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"cookies": cookies})
	})
	mux.HandleFunc("/basic-auth/{user}/{password}", func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != r.PathValue("user") || password != r.PathValue("password") {
			w.Header().Set("WWW-Authenticate", `Basic realm="Fake Realm"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	mux.HandleFunc("/digest-auth/auth/{user}/{password}/{algorithm}", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "fake", Value: "fake_value"})
		digest(w, r, r.PathValue("algorithm"), r.PathValue("user"), r.PathValue("password"))
	})
	for _, path := range []string{"/get", "/post", "/headers", "/html"} {
		mux.HandleFunc(path, echo)
	}
	return mux
}

// digest asks for digest authentication (RFC 7616) until the response to its one nonce is right.
func digest(w http.ResponseWriter, r *http.Request, algorithm, user, password string) {
	sum := func(parts ...string) string {
		h := map[string]func() hash.Hash{"MD5": md5.New, "SHA-256": sha256.New, "SHA-512": sha512.New}[algorithm]()
		h.Write([]byte(strings.Join(parts, ":")))
		return hex.EncodeToString(h.Sum(nil))
	}
	given := map[string]string{}
	for _, m := range regexp.MustCompile(`(\w+)="?([^",]*)"?`).FindAllStringSubmatch(r.Header.Get("Authorization"), -1) {
		given[m[1]] = m[2]
	}
	if given["response"] != sum(sum(user, "realm", password), "nonce", given["nc"], given["cnonce"], "auth", sum(r.Method, given["uri"])) {
		w.Header().Set("WWW-Authenticate", `Digest realm="realm", nonce="nonce", qop="auth", opaque="opaque", algorithm=`+algorithm)
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// TestTheTestsOfRequests runs the library's own tests about redirects, authentication and cookies in the sandbox.
func TestTheTestsOfRequests(t *testing.T) {
	server := httptest.NewServer(likeHTTPBin())
	defer server.Close()
	out := runTool(t, filepath.Join("guest-sdk", "python", "testdata", "requests"), map[string]any{"url": server.URL}, server.URL)
	var got struct {
		Count    int
		Failures []string
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Count < 65 {
		t.Fatalf("%d tests ran: %v", got.Count, err)
	}
	for _, f := range got.Failures {
		t.Error(f)
	}
}

// runTool calls a tool that may reach servers, replays the run, and returns the output.
func runTool(t *testing.T, ref string, input any, servers ...string) string {
	t.Helper()
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "db"), starling.Options{}))
	defer db.Close()
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, starling.Must(url.Parse(s)).Host)
	}
	tool, err := db.Load(t.Context(), ref, starling.ToolOptions{AllowHosts: hosts, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	run, err := tool.Call(t.Context(), string(document))
	if run == nil {
		t.Fatal(err)
	}
	if verdict, err := db.Replay(t.Context(), run.ID); err != nil || !verdict.Identical() {
		t.Errorf("replay: %v, %v", verdict, err)
	}
	return run.Output() + reason(run)
}

// oddities answers the programs of testdata/parity.py, and keeps the requests without what has to differ: versions, random
// numbers, and what belongs to the connection.
type oddities struct {
	log   []string
	flaky int
	mutex sync.Mutex
}

var vary = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(?i)(python-(requests|urllib3?))/[0-9.]+`), "$1"},
	{regexp.MustCompile(`gzip, ?deflate(, ?(br|zstd))*`), "gzip, deflate"},
	{regexp.MustCompile(`[0-9a-f]{32}`), "RANDOM"}, // the boundary of a form, and the response of a digest
	{regexp.MustCompile(`cnonce=\\?"[0-9a-f]+`), "cnonce"},
	{regexp.MustCompile(`:[0-9]{4,5}\b`), ":PORT"},
}

func (o *oddities) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	header := r.Header.Clone()
	for _, name := range []string{"Connection", "Content-Length", "Idempotency-Key"} {
		header.Del(name)
	}
	if header.Get("User-Agent") == "starling-host" { // where the program has none
		header.Del("User-Agent")
	}
	text := fmt.Sprintf("%s %s%s %q %q", r.Method, r.Host, r.URL.RequestURI(), header, body)
	for _, v := range vary {
		text = v.pattern.ReplaceAllString(text, v.with)
	}
	o.mutex.Lock()
	o.log = append(o.log, text)
	o.flaky++
	flaky := o.flaky
	o.mutex.Unlock()
	answer := func(kind, text string) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, text)
	}
	path, last := path.Dir(r.URL.Path), path.Base(r.URL.Path)
	code, _ := strconv.Atoi(last)
	switch {
	case strings.HasSuffix(path, "/redirect"):
		if c := r.FormValue("cookie"); c != "" {
			w.Header().Set("Set-Cookie", c)
		}
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(code)
	case last == "loop":
		w.Header().Set("Location", "/loop")
		w.WriteHeader(http.StatusFound)
	case path == "/status":
		w.WriteHeader(code)
	case last == "cookies":
		w.Header()["Set-Cookie"] = []string{"a=1; Path=/", "b=2; Expires=Wed, 09 Jun 2100 10:18:14 GMT", "c=3; Path=/sub"}
	case last == "end":
		w.Header().Set("Set-Cookie", "a=; Path=/; Max-Age=0")
	case last == "basic":
		if user, password, _ := r.BasicAuth(); user != "u" || password != "p" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	case last == "digest":
		digest(w, r, "MD5", "u", "p")
	case last == "slow":
		<-r.Context().Done()
	case last == "reset":
		o.mutex.Lock()
		o.flaky = 0
		o.mutex.Unlock()
	case last == "flaky" && flaky < 3:
		w.WriteHeader(http.StatusServiceUnavailable)
	case last == "text":
		answer("text/html", "<p>no JSON</p>")
	case last == "latin":
		answer("text/plain; charset=iso-8859-1", "caf\xe9")
	case last == "utf8":
		answer("text/plain; charset=utf-8", "café")
	case last == "plain":
		answer("text/plain", "café")
	case last == "bom":
		answer("application/json", "\ufeff[1]")
	case last == "guess":
		answer("application/octet-stream", "\xcf\xf0\xe8\xe2\xe5\xf2, \xea\xe0\xea \xe4\xe5\xeb\xe0? \xd1\xe5\xe3\xee\xe4\xed\xff \xf5\xee\xf0\xee\xf8\xe0\xff \xef\xee\xe3\xee\xe4\xe0")
	case last == "gzip", last == "brokengzip":
		w.Header().Set("Content-Encoding", "gzip")
		if last == "brokengzip" {
			answer("text/plain", "no gzip")
			return
		}
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, `{"a":"ä"}`)
		_ = z.Close()
	case last == "deflate":
		w.Header().Set("Content-Encoding", "deflate")
		z := zlib.NewWriter(w)
		_, _ = io.WriteString(z, "deflated")
		_ = z.Close()
	case last == "lines":
		answer("text/plain; charset=utf-8", "one\ntwö\r\nthree\n\nlast")
	case last == "link":
		w.Header().Set("Link", "<http://"+r.Host+`/link?page=2>; rel="next"`)
	default:
		text, _ := json.Marshal([]string{r.Method, r.URL.RequestURI(), string(body)})
		for _, v := range vary {
			text = v.pattern.ReplaceAll(text, []byte(v.with))
		}
		answer("application/json", string(text))
	}
}

// takeLog returns the requests, by the program that sent them, and forgets them.
func (o *oddities) takeLog() map[string][]string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	byProgram, name := map[string][]string{}, ""
	for _, line := range o.log {
		if m := regexp.MustCompile(`"X-Name":\["(.*?)"\]`).FindStringSubmatch(line); m != nil {
			name = m[1]
		} else {
			byProgram[name] = append(byProgram[name], line)
		}
	}
	o.log = nil
	return byProgram
}

// TestRequestsAreThoseOfPython runs the same programs in Python itself and in the sandbox, with one server, and
// compares what they return and what they send.
func TestRequestsAreThoseOfPython(t *testing.T) {
	const python = "/usr/bin/python3" // Debian's, which has Debian's libraries
	if said, err := exec.Command(python, "-c", "import requests, charset_normalizer").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: needs python3-requests: %v: %s", err, said)
	}
	o := &oddities{}
	server := httptest.NewServer(o)
	defer server.Close()
	nobody := httptest.NewServer(o)
	nobody.Close()
	other := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	input := map[string]string{"base": server.URL, "other": other, "closed": nobody.URL}
	document, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), python, "-c",
		"import json, sys\nsys.modules['chardet'] = None\nimport parity\nprint(json.dumps(parity.run(**json.loads(sys.argv[1]))))", string(document))
	command.Dir = filepath.Join("guest-sdk", "python", "testdata")
	command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
	said, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	sent := o.takeLog()
	got := results(t, runTool(t, filepath.Join("guest-sdk", "python", "testdata", "parity.py"), input, server.URL, other, nobody.URL))
	sentThere := o.takeLog()
	want := results(t, string(said))
	if len(want) < 75 || len(got) != len(want) {
		t.Errorf("%d programs, want %d", len(got), len(want))
	}
	for name, result := range want {
		if got[name] != result {
			t.Errorf("%s:\n got %s\nwant %s", name, got[name], result)
		}
		if got, want := strings.Join(sentThere[name], "\n"), strings.Join(sent[name], "\n"); got != want {
			t.Errorf("%s sends\n%s\nwant\n%s", name, got, want)
		}
	}
}

// results returns what came of each program of parity.py.
func results(t *testing.T, document string) map[string]string {
	t.Helper()
	var rows [][2]any
	if err := json.Unmarshal([]byte(document), &rows); err != nil {
		t.Fatalf("%v: %s", err, document)
	}
	byProgram := map[string]string{}
	for _, row := range rows {
		text, _ := json.Marshal(row[1])
		byProgram[row[0].(string)] += string(text)
	}
	return byProgram
}

// TestRedirectsLeavePlaceholdersBehind: a download behind a redirect gets its secret at the first host alone, and a header
// of the program's own that has one is refused at the second.
func TestRedirectsLeavePlaceholdersBehind(t *testing.T) {
	var seen []string
	server := httptest.NewServer(nil)
	defer server.Close()
	other := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.Path+" "+r.Header.Get("Authorization")+r.Header.Get("X-Key"))
		if r.URL.Path == "/away" {
			http.Redirect(w, r, other+"/there", http.StatusFound)
		}
	})
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "db"), starling.Options{}))
	defer db.Close()
	for _, c := range []struct {
		header, seen, want string
	}{
		{"Authorization", "/away hunter2hunter2|/there ", "200"},
		{"X-Key", "/away hunter2hunter2", "denied"},
	} {
		t.Setenv("STARLING_SECRET_TOKEN", "hunter2hunter2")
		rules, err := policy.Parse("policy.yaml", []byte(fmt.Sprintf(`version: "1.0"
permissions:
  network: {allow: [{host: 127.0.0.1, ports: [%[1]s], schemes: [http], private: true}, {host: localhost, ports: [%[1]s], schemes: [http], private: true}]}
  tools: {"*": {}}
secrets: [{name: TOKEN, audience: ["127.0.0.1:%[1]s"], header: %[2]s}]
`, starling.Must(url.Parse(server.URL)).Port(), c.header)))
		if err != nil {
			t.Fatal(err)
		}
		tool, err := db.Load(t.Context(), write(t, "tool.py", `import requests
def load(url: str, header: str) -> int:
    "Loads."
    return requests.get(url + "/away", headers={header: "{{secret:TOKEN}}"}).status_code
`), starling.ToolOptions{Policy: rules})
		if err != nil {
			t.Fatal(err)
		}
		seen = nil
		run, err := tool.Call(t.Context(), fmt.Sprintf(`{"url":%q,"header":%q}`, server.URL, c.header))
		if run == nil {
			t.Fatal(err)
		}
		if got := run.Output() + reason(run); strings.Join(seen, "|") != c.seen || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, and the servers have seen %q", c.header, got, seen)
		}
	}
}

// TestErrorsOfExchangesKeepTheirKind: what a library wraps an exchange without a response in still says whether another
// attempt can help. An error of the tool's own does not.
func TestErrorsOfExchangesKeepTheirKind(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	nobody := httptest.NewServer(nil)
	nobody.Close()
	denied := "http://denied.example"
	dir := write(t, "tool.py", `import http.client, urllib.request
import requests, starling, urllib3
from requests.adapters import HTTPAdapter

def retried(url):
    session = requests.Session()
    session.mount("http://", HTTPAdapter(max_retries=2))
    return session.get(url, timeout=0.2)

CALLS = {
    "requests": lambda url: requests.get(url, timeout=0.2), "retried": retried,
    "urllib": lambda url: urllib.request.urlopen(url, timeout=0.2), "urllib3": lambda url: urllib3.request("GET", url, timeout=0.2, retries=False),
    "starling": lambda url: starling.request("GET", url, headers={"Starling-Timeout": 200}),
}

def call(how: str, url: str, wrap: bool = False) -> int:
    "Calls."
    try:
        CALLS[how](url)
    except Exception as error:
        if wrap:
            raise ValueError("of the tool")
        raise
    return 0
`)
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "db"), starling.Options{}))
	defer db.Close()
	caller, err := db.Load(t.Context(), dir, starling.ToolOptions{AllowPrivate: true, AllowHosts: []string{strings.TrimPrefix(slow.URL, "http://"), strings.TrimPrefix(nobody.URL, "http://")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"requests", "retried", "urllib", "urllib3", "starling"} {
		for address, want := range map[string]abi.ErrorKind{slow.URL: abi.ErrorTransient, nobody.URL: abi.ErrorTransient, denied: abi.ErrorCancel} {
			for _, wrap := range []bool{false, true} {
				want := want
				if wrap {
					want = abi.ErrorTool
				}
				run, err := caller.Call(t.Context(), fmt.Sprintf(`{"how":%q,"url":%q,"wrap":%v}`, how, address, wrap))
				if run == nil {
					t.Fatal(err)
				}
				if kind, _ := toolkind.KindOf(err); run.Failure == nil || kind != want || address == denied && !wrap && !strings.Contains(run.Failure.Message, "denied.example") {
					t.Errorf("%s of %s, wrapped %v: %+v, want %s", how, address, wrap, run.Failure, want)
				}
			}
		}
	}
}
