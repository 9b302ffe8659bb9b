package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/serve/internal/inspect"
)

// absent is a run that nobody has.
const absent = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

// noModule is the digest of a module that nobody has.
var noModule = strings.Repeat("0a", 32)

// TestTenantSeesNoRunOfAnotherTenant has bob ask for alice's run in every way that both
// servers have, and compares with what he gets for a run that nobody has.
func TestTenantSeesNoRunOfAnotherTenant(t *testing.T) {
	w := newWorld(t)
	w.upload("alice", "say", canary)
	run, _ := asks(t, w.assistant("alice"), "say", `{}`)
	foreign := []string{run, "alice/" + run, "../alice/" + run, "bob/../alice/" + run, "/" + run, run[:25], strings.ToLower(run)}
	bob := w.assistant("bob")
	if _, said := asks(t, bob, "say", `{}`); !strings.Contains(said, "unknown tool") {
		t.Errorf("bob calls alice's tool: %s", said)
	}
	n := treetest.Count(25, 25, 250)
	toolsTellNothing(t, bob, slices.Concat(foreign, guesses(n)))
	pagesTellNothing(t, w.browser("bob"), slices.Concat(foreign, guesses(2*n)))
	for _, query := range []string{`list_runs {}`, `search_runs {"query":"` + canary + `"}`, `search_runs {"kind":"RunStarted"}`} {
		name, arguments, _ := strings.Cut(query, " ")
		if _, got := asks(t, bob, name, arguments); strings.Contains(got, canary) || strings.Contains(got, run) {
			t.Errorf("%s: %s", query, got)
		}
	}
}

// guesses are so many things that nobody has.
func guesses(n int) []string {
	const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	random := rand.New(rand.NewPCG(1, 2))
	ids := []string{"0", "-", "*", "%", "'", "alice", "bob", "..%2f", "a b", "null", "1 OR 1=1", strings.Repeat("a", 64)}
	for len(ids) < n {
		id := []byte(event.NewID())
		for i := 10 + random.IntN(15); i < len(id); i++ {
			id[i] = letters[random.IntN(len(letters))]
		}
		ids = append(ids, string(id))
	}
	return ids
}

// toolsTellNothing asks every tool that the server lists for the runs, in the place of
// every text that it takes.
func toolsTellNothing(t *testing.T, session *mcp.ClientSession, ids []string) {
	t.Helper()
	asked := 0
	for tool, err := range session.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		takes := textsOf(t, tool)
		asked++
		for _, property := range takes {
			word := func(id string) string { return id }
			if tool.Name == "list_runs" {
				word = strconv.Quote // a word of the language of queries
			}
			_, want := asks(t, session, tool.Name, arguments(t, tool, property, word(absent)))
			for _, id := range ids {
				if _, got := asks(t, session, tool.Name, arguments(t, tool, property, word(id))); got != want {
					t.Errorf("%s with the %s %s: %q, and of what is absent %q", tool.Name, property, id, got, want)
					break
				}
			}
		}
	}
	if asked != 7 {
		t.Errorf("bob has %d tools", asked)
	}
}

// textsOf returns the properties of a tool's arguments that are texts, as those are that
// name a run. One that is something else, and not known here, fails the test.
func textsOf(t *testing.T, tool *mcp.Tool) (names []string) {
	t.Helper()
	for name, p := range schemaOf(t, tool).Properties {
		kind := fmt.Sprint(p["type"])
		switch {
		case strings.Contains(kind, "string"):
			names = append(names, name)
		case !strings.Contains(kind, "integer") && kind != "boolean":
			t.Errorf("nobody has said how the %s of %s, of type %s, keeps tenants apart", name, tool.Name, kind)
		}
	}
	slices.Sort(names)
	return names
}

type schema struct {
	Properties map[string]map[string]any `json:"properties"`
	Required   []string                  `json:"required"`
}

func schemaOf(t *testing.T, tool *mcp.Tool) (s schema) {
	t.Helper()
	text, err := json.Marshal(tool.InputSchema)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil || len(s.Properties) == 0 {
		t.Fatalf("the schema of %s: %s, %v", tool.Name, text, err)
	}
	return s
}

// arguments are those of a call in which one property is a run, and the others that are
// required are what there is not.
func arguments(t *testing.T, tool *mcp.Tool, property, id string) string {
	t.Helper()
	s := schemaOf(t, tool)
	all := map[string]any{}
	for _, name := range s.Required {
		all[name] = absent
		if !strings.Contains(fmt.Sprint(s.Properties[name]["type"]), "string") {
			all[name] = 1
		}
	}
	all[property] = id
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ways are the requests with which a page is asked for a run, in a browser that shows
// none of its own; of the routes that the table of the view has, by their patterns.
func ways(t *testing.T) (templates []string) {
	t.Helper()
	listed := map[string][]string{
		"GET /{$}":          nil, // of it and of a search in it, pagesTellNothing looks at what is shown
		"GET /live":         nil, // likewise: the list as it changes
		"GET /tools":        nil, // of bob's own runs, like the next ones
		"GET /tools/{tool}": {"GET /tools/%s"}, "GET /tools/{tool}/change": {"GET /tools/%s/change?to=" + noModule}, "POST /tools/{tool}/change": {"POST /tools/%s/change?to=" + noModule},
		"GET /queue/live": {"GET /queue/live?tenant=%s"},
		"GET /usage":      nil, // which shows bob his own, see TestAnOperatorSteersInTheWebView
		"GET /queue":      {"GET /queue?tenant=%s"}, "POST /queue/{what}": {"POST /queue/%s"},
		"GET /diff": {"GET /diff?a=%s&b=" + absent, "GET /diff?a=" + absent + "&b=%s"},
	}
	for _, r := range inspect.Routes() {
		known, ok := listed[r.Pattern]
		delete(listed, r.Pattern)
		switch {
		case r.Open, ok:
			templates = append(templates, known...)
		case strings.Contains(r.Pattern, "/{run}"):
			templates = append(templates, strings.NewReplacer("{run}", "%s", "{seq}", "1").Replace(r.Pattern))
		default:
			t.Errorf("nobody has said how %s keeps tenants apart", r.Pattern)
		}
	}
	if len(listed) > 0 || len(templates) < 8 {
		t.Errorf("%v are no routes; %v", slices.Collect(maps.Keys(listed)), templates)
	}
	return templates
}

// pagesTellNothing asks the web view for the runs, by each of its routes. The first of
// the ids is alice's.
func pagesTellNothing(t *testing.T, b *browser, ids []string) {
	t.Helper()
	form := url.Values{}
	for _, template := range ways(t) {
		method, path, _ := strings.Cut(template, " ")
		wanted := map[string]string{} // by what is absent
		for _, id := range ids {
			twin := absent
			if strings.Contains(id, ids[0]) {
				twin = strings.ReplaceAll(id, ids[0], absent) // some forms of an id are not paths of the view
			}
			if _, known := wanted[twin]; !known {
				_, wanted[twin] = b.load(method, inspectorPrefix+fmt.Sprintf(path, url.PathEscape(twin)), form)
			}
			code, got := b.load(method, inspectorPrefix+fmt.Sprintf(path, url.PathEscape(id)), form)
			if code != http.StatusNotFound || got != wanted[twin] {
				t.Errorf("%s of %s: %d; the same page as of what is absent: %t", template, id, code, got == wanted[twin])
				break
			}
		}
	}
	for _, id := range ids {
		if _, page := b.load(http.MethodGet, "/inspect/?q="+url.QueryEscape(id), nil); !strings.Contains(page, "No run matches.") && !strings.Contains(page, "there is no word") || strings.Contains(page, "/runs/") {
			t.Errorf("a search for %s shows %s", id, page)
			break
		}
	}
	for _, path := range []string{"/inspect/", "/inspect/?q=" + ids[0], "/inspect/diff", "/inspect/?per_page=200"} {
		if _, page := b.load(http.MethodGet, path, nil); strings.Contains(page, "alice") || strings.Contains(page, "/runs/"+ids[0]) {
			t.Errorf("%s tells of alice: %s", path, page)
		}
	}
}
