package guest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/policy"
)

// The policy that is suggested for a run refuses nothing of it, and has nothing in
// it that could be left out.
func TestTheSuggestedPolicyIsTheSmallest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "it is ", r.URL.Path) }))
	defer server.Close()
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	at := server.Listener.Addr().String()
	p := parsePolicy(t, `
permissions: {network: {allow: [{host: 127.0.0.1, schemes: [http], ports: [`+port+`], methods: [GET, PUT], private: true}]}}
secrets: [{name: K, audience: ["`+at+`"], header: X-Key}, {name: K, audience: ["`+at+`"], query: "no"}]
`)
	tool := messenger(t)
	var requests []string
	for _, line := range []string{"GET /a", "GET /a", "GET /b*/%2A/'x'", "PUT /a", "GET /a/../b", "DELETE /a", "GET /?no={{secret:K}}"} {
		method, path, _ := strings.Cut(line, " ")
		requests = append(requests, method+" "+server.URL+path+" HTTP/1.1\r\nX-Key: {{secret:K}}\r\n\r\n")
	}
	_, events := direct(t, tool, policy.NewRun(p, nil, vault{"K": "hunter2hunter2"}), input(t, requests...))
	text, err := policy.Suggest(events)
	if err != nil {
		t.Fatal(err)
	}
	suggested, err := policy.Parse("suggested.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	refused, err := policy.Test(suggested, nil, events)
	if err != nil || len(refused) > 0 {
		t.Errorf("%v, %+v\n%s", err, refused, text)
	}
	if strings.Contains(string(text), "DELETE") || len(suggested.Network) != 3 || len(suggested.Secrets) != 2 {
		t.Errorf("%s", text)
	}
	lines := strings.SplitAfter(string(text), "\n")
	for i, line := range lines {
		if !strings.HasPrefix(strings.TrimSpace(line), "- ") && !strings.Contains(line, "messenger:") {
			continue
		}
		smaller, err := policy.Parse("smaller.yaml", []byte(strings.Join(lines[:i], "")+strings.Join(lines[i+1:], "")))
		if err != nil {
			continue // a list with nothing in it
		}
		if refused, err := policy.Test(smaller, nil, events); err != nil || len(refused) == 0 {
			t.Errorf("%q can be left out (%v)", line, err)
		}
	}
	for _, at := range regexp.MustCompile("max_bytes: [0-9]+").FindAllStringIndex(string(text), -1) {
		n, err := strconv.Atoi(string(text[at[0]+len("max_bytes: ") : at[1]]))
		less := fmt.Sprintf("%smax_bytes: %d%s", text[:at[0]], n-1, text[at[1]:])
		if err != nil || n == 0 {
			t.Fatalf("%v\n%s", err, text)
		}
		if refused, err := policy.Test(parsePolicy(t, strings.Replace(less, "version: \"1.0\"", "", 1)), nil, events); err != nil || len(refused) == 0 {
			t.Errorf("a byte less refuses nothing (%v)\n%s", err, less)
		}
	}
	for _, change := range [][2]string{{"max_calls: 4", "max_calls: 3"}, {"max_bytes: [0-9]+", "max_bytes: 300"}, {"fuel: [0-9]+", "fuel: 1"}, {"memory: [0-9]+KiB", "memory: 64KiB"}, {"/a,", "/c,"}, {"'127.0.0.1', schemes", "'127.0.0.2', schemes"}} {
		changed := regexp.MustCompile(change[0]).ReplaceAllString(string(text), change[1])
		refused, err := policy.Test(parsePolicy(t, strings.Replace(changed, "version: \"1.0\"", "", 1)), nil, events)
		if err != nil || len(refused) == 0 {
			t.Errorf("%v refuses nothing (%v)\n%s", change, err, changed)
		}
	}
}
