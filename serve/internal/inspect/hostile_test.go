package inspect_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/search"
)

// hostile are texts that once broke out of a page: text that closes an element, that
// runs in an attribute, or that a parser misreads.
var hostile = []string{
	`<script>alert(1)</script>`, `</script><script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `<svg/onload=alert(1)>`,
	`"><script>alert(1)</script>`, `'><script>alert(1)</script>`, `" onmouseover="alert(1)`, `' onfocus='alert(1)' autofocus='`,
	"` onerror=alert(1) `", `javascript:alert(1)`, "java\tscript:alert(1)", `data:text/html,<script>alert(1)</script>`, `</title><script>alert(1)</script>`,
	`</textarea><script>alert(1)</script>`, `</pre><script>alert(1)</script>`, `</template><script>alert(1)</script>`, `</select><script>alert(1)</script>`,
	`--><script>alert(1)</script>`, `<!--`, `]]>`, `<![CDATA[`, `<?xml version="1.0"?>`, `<base href=//evil.example>`, `<meta http-equiv=refresh content=0;url=//evil>`,
	`<iframe srcdoc="<script>alert(1)</script>">`, `<form action=//evil><input name=csrf>`, `<a href="javascript:alert(1)">x</a>`, `<math><mi xlink:href="javascript:alert(1)">`,
	`{{.}}`, `{{define "body"}}`, `${alert(1)}`, `&lt;script&gt;`, `&#x3c;script&#x3e;`, `\u003cscript\u003e`, `%3Cscript%3E`, `+ADw-script+AD4-`,
	"\u202Eevil\u202C", "\u2028\u2029", "a\u0000b", "\ufeff", "\U000E0041", `<` + strings.Repeat("x", 300), "one\n</pre><b>two", `//evil.example/`, `..`, `%2e%2e`, `?a=1#x`,
}

// naughty is the Big List of Naughty Strings.
func naughty(t *testing.T) []string {
	t.Helper()
	doc, err := os.ReadFile("testdata/blns.base64.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	if err := json.Unmarshal(doc, &list); err != nil {
		t.Fatal(err)
	}
	for i, encoded := range list {
		text, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		list[i] = strings.ToValidUTF8(strings.TrimSuffix(string(text), "\n"), "\uFFFD")
	}
	return list
}

// TestHostileTextsStayTexts puts each text into every field of every kind of event,
// into the run's id and into the address, and expects the elements and attributes
// that a harmless text of the same shape gets.
func TestHostileTextsStayTexts(t *testing.T) {
	texts := slices.Concat(hostile, naughty(t))
	if len(texts) < 500 {
		t.Fatalf("only %d texts", len(texts))
	}
	if testing.Short() {
		texts = hostile
	}
	for i, text := range texts {
		if text == "" || len(text) > eventlog.MaxRunIDBytes {
			text = text[:min(len(text), 100)] + "x"
			text = strings.ToValidUTF8(text, "")
		}
		events := 15
		if i >= len(hostile) {
			events = 2 // the timeline has all of them
		}
		want, got := shapes(t, harmless(text), events), shapes(t, text, events)
		for name := range got {
			if want[name] != got[name] {
				t.Errorf("text %d, %q, changes the page %s:\n%s", i, text, name, firstDifference(want[name], got[name]))
			}
		}
	}
}

// harmless is a text of the same shape: as many characters, the same line breaks.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return 'x'
	}, text)
}

// shapes returns the elements and attribute names of the pages about a run that is
// full of a text.
func shapes(t *testing.T, text string, events int) map[string]string {
	t.Helper()
	log := store.Memory()
	for kind := event.KindRunStarted; kind.Valid(); kind++ {
		if !kind.Terminal() {
			appendEvent(t, log, text, kind, fill(kind, text))
		}
	}
	appendEvent(t, log, text, event.KindRunFailed, fill(event.KindRunFailed, text))
	view := viewOf(log, "")
	view.Title = text
	b := openView(t, view)
	id := url.PathEscape(text)
	pages := map[string]string{}
	load := func(name, path string) {
		_, body := b.get(path)
		pages[name] = shape(t, body)
	}
	load("list", "/")
	load("list, searched", "/?q="+url.QueryEscape(search.Word("text", text)))
	load("sign-in", "/sign-in?to="+url.QueryEscape(text))
	load("diff", "/diff?all=1&a="+url.QueryEscape(text)+"&b="+url.QueryEscape(text))
	if text == "." || text == ".." {
		return pages // a browser takes these out of a path
	}
	for _, view := range []string{"", "/events", "/conversation", "/requests"} {
		load("run"+view, "/runs/"+id+view+"?at=9")
	}
	for seq := range events {
		load(fmt.Sprintf("event %d", seq), fmt.Sprintf("/runs/%s/events/%d", id, seq))
	}
	for _, what := range []string{"validate", "replay"} {
		_, body := b.post("/runs/"+id+"/"+what, url.Values{})
		pages[what] = shape(t, body)
	}
	return pages
}

// fill returns a payload of a kind with the text in every field that takes one.
func fill(kind event.Kind, text string) any {
	prototypes := map[event.Kind]any{
		event.KindRunStarted: event.RunStarted{}, event.KindUserMessageAppended: event.UserMessageAppended{}, event.KindTurnStarted: event.TurnStarted{},
		event.KindReasoningEmitted: event.ReasoningEmitted{}, event.KindAssistantMessageCompleted: event.AssistantMessageCompleted{},
		event.KindToolCallScheduled: event.ToolCallScheduled{}, event.KindToolCallCompleted: event.ToolCallCompleted{}, event.KindToolCallFailed: event.ToolCallFailed{},
		event.KindSideEffectRecorded: event.SideEffectRecorded{}, event.KindBudgetExceeded: event.BudgetExceeded{}, event.KindRunFailed: event.RunFailed{},
		event.KindRunResumed: event.RunResumed{},
	}
	prototype, ok := prototypes[kind]
	if !ok {
		return map[string]string{text: text}
	}
	v := reflect.New(reflect.TypeOf(prototype)).Elem()
	fillValue(v, text)
	return v.Interface()
}

func fillValue(v reflect.Value, text string) {
	switch {
	case v.Type() == reflect.TypeFor[canon.Raw]():
		raw, err := canon.Marshal(map[string]any{text: []string{text}})
		if err != nil {
			panic(err)
		}
		v.SetBytes(raw)
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fillValue(v.Field(i), text)
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem(), text)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillValue(v.Index(0), text)
	}
}

// shape parses a page as a browser does, and returns its elements and the names of
// their attributes. Every address in it must be on this server.
func shape(t *testing.T, page string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		fmt.Fprintf(&b, "%s", n.Data)
		for _, a := range n.Attr {
			fmt.Fprintf(&b, " %s", a.Key)
			leads := a.Key == "href" || a.Key == "src" || a.Key == "action" || a.Key == "data-live"
			if leads && a.Val != "" && (!strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#") || strings.HasPrefix(a.Val, "//")) {
				t.Errorf("%s %s leads to %q", n.Data, a.Key, a.Val)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("element %d: want %s, got %s", i, w[i], g[i])
		}
	}
	return fmt.Sprintf("want %d elements, got %d", len(w), len(g))
}
