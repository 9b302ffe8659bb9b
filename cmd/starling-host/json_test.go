package main

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/cmd/starling-host/internal/toolcase"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve/gateway"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// field is one line of a table of docs/cli-json.md.
type field struct {
	Key, Type string
	Optional  bool
}

// documented returns the tables of docs/cli-json.md by section.
func documented(t *testing.T) map[string][]field {
	t.Helper()
	text, err := os.ReadFile("../../docs/cli-json.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("^\\| `([^`]+)` \\| (\\w+) \\| (\\*optional\\*)?")
	tables := map[string][]field{}
	section := ""
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(name)
		}
		if m := row.FindStringSubmatch(line); m != nil {
			tables[section] = append(tables[section], field{Key: m[1], Type: m[2], Optional: m[3] != ""})
		}
	}
	return tables
}

// fieldsOf returns the keys that encoding a struct can give.
func fieldsOf(prefix string, t reflect.Type) []field {
	var all []field
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() && !f.Anonymous {
			continue // which encoding/json leaves out
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		kind, inner, inside := jsonType(f.Type)
		if f.Anonymous { // its keys are those of the struct around it
			all = append(all, fieldsOf(prefix, f.Type)...)
			continue
		}
		all = append(all, field{prefix + name, kind, strings.Contains(options, "omit")})
		if inner != nil {
			all = append(all, fieldsOf(prefix+name+inside+".", inner)...)
		}
	}
	return all
}

// jsonType returns the JSON type of a Go type, the struct inside of it if there
// is one, and what leads there.
func jsonType(t reflect.Type) (kind string, inner reflect.Type, inside string) {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "string", nil, ""
	case t == reflect.TypeFor[json.RawMessage](), t == reflect.TypeFor[abi.JSON]():
		return "any", nil, ""
	case t.Kind() == reflect.Pointer:
		return jsonType(t.Elem())
	case t.Kind() == reflect.Map:
		return "object", nil, ""
	case t.Kind() == reflect.Struct:
		return "object", t, ""
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "array", t.Elem(), "[]"
	case t.Kind() == reflect.Slice:
		return "array", nil, ""
	case t.Kind() == reflect.String:
		return "string", nil, ""
	case t.Kind() == reflect.Bool:
		return "boolean", nil, ""
	case t.Kind() == reflect.Float64:
		return "number", nil, ""
	}
	return "integer", nil, ""
}

func TestDocumentedJSON(t *testing.T) {
	tables := documented(t)
	for section, document := range map[string]any{
		"agent run":                agentDocument{},
		"run":                      starling.Run{},
		"replay":                   agent.ReplayDocument{},
		"validate":                 checkedDocument{},
		"runs":                     view.Runs{},
		"seal":                     sealedDocument{},
		"verify":                   seal.ReportDocument{},
		"verify an archive":        archiveDocument{},
		"verify a bundle":          starling.BundleDocument{},
		"verify a proof":           starling.ProofDocument{},
		"verify receipts":          starling.ReceiptDocument{},
		"prune":                    pruneDocument{},
		"tool describe":            starling.ModuleDocument{},
		"tool check":               starling.Certificate{},
		"tool test":                toolcase.Verdict{},
		"tool test --record":       writtenDocument{},
		"tool push, pull and sign": sharedDocument{},
		"tool list":                artifact.Listed{},
		"tool verify":              verifiedDocument{},
		"tool diff":                diffDocument{},
		"mcp verify":               gateway.Verification{},
		"tenant create":            keyDocument{},
		"tenant list":              tenantsDocument{},
		"tenant limits":            tenant.Limits{},
		"tenant usage":             tenant.UsageList{},
		"tenant erase":             erasureDocument{},
		"secret list":              secretsDocument{},
		"queue":                    queue.Overview{},
		"hosts":                    queue.HostList{},
		"policy test":              policy.RefusalDocument{},
		"policy check":             acceptedDocument{},
		"policy explain":           policy.Explanation{},
		"workspace diff":           changesDocument{},
	} {
		if d := cmp.Diff(tables[section], fieldsOf("", reflect.TypeOf(document))); d != "" {
			t.Errorf("docs/cli-json.md, %s (-documented +printed):\n%s", section, d)
		}
		for _, f := range tables[section] { // sealed is what a signed checkpoint covers
			if strings.Contains(f.Key, "sealed") && !strings.HasPrefix(section, "verify") {
				t.Errorf("%s: %s is about encryption, a start image, an envelope or a digest: name it so", section, f.Key)
			}
		}
	}
}

func TestDocumentedExport(t *testing.T) {
	line, err := event.ToJSON(event.Event{RunID: "r", Seq: 1, Kind: event.KindRunStarted, Payload: canon.Raw{0xa0}})
	if err != nil {
		t.Fatal(err)
	}
	var printed map[string]any
	if err := json.Unmarshal(line, &printed); err != nil {
		t.Fatal(err)
	}
	table := documented(t)["export"]
	for _, f := range table {
		if _, ok := printed[f.Key]; !ok {
			t.Errorf("%s is documented and not printed", f.Key)
		}
	}
	if len(printed) != len(table) {
		t.Errorf("%d keys are printed and %d documented", len(printed), len(table))
	}
}
