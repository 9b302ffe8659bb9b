package openapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/cmd/starling-host/internal/openapi"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/tool"
)

var update = flag.Bool("update", false, "write the expected files of testdata anew")

// TestFolder compares the folders of small documents with testdata: each folder there has a
// document and the files that are made of it.
func TestFolder(t *testing.T) {
	documents, err := filepath.Glob("testdata/*/openapi.*")
	if err != nil || len(documents) < 3 {
		t.Fatalf("%d documents: %v", len(documents), err)
	}
	for _, document := range documents {
		dir := filepath.Dir(document)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			spec, err := os.ReadFile(document)
			if err != nil {
				t.Fatal(err)
			}
			files, err := openapi.Folder(budget(t), filepath.Base(dir), filepath.Base(document), spec, nil, true)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := policy.Parse("policy.yaml", files["policy.yaml"]); err != nil {
				t.Errorf("the policy: %v", err)
			}
			for _, name := range []string{"operations.py", "policy.yaml", "README.md"} {
				golden := filepath.Join(dir, name)
				if *update {
					if err := os.WriteFile(golden, files[name], 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), string(files[name])); diff != "" {
					t.Errorf("%s (-want +got), accept it with -update:\n%s", name, diff)
				}
			}
		})
	}
}

func budget(t testing.TB) *work.Budget { return work.New(t.Context(), work.ForSize(1<<20)) }

// TestOneHostGetsTheSecret names other hosts in all places where a document can, and looks for them
// in everything that is written.
func TestOneHostGetsTheSecret(t *testing.T) {
	const auth = `,"security":[{"k":[]}],"components":{"securitySchemes":{"k":{"type":"http","scheme":"bearer"}}}`
	plain := `"/a":{"get":{}},"/b":{"get":{}}`
	for name, other := range map[string]string{
		"loopback": "http://localhost:2375", "metadata": "http://169.254.169.254", "an address": "http://127.0.0.1", "private": "https://10.1.2.3", "IPv6": "http://[::1]:8080", "unique local": "http://[fd00::1]",
		"shared": "http://100.100.100.200", "Docker's name": "http://docker:2375", "a local name": "https://vault.internal", "mDNS": "http://printer.local", "another public one": "https://evil.example", "another port": "https://a.test:8443", "no TLS": "http://a.test",
	} {
		for place, doc := range map[string]string{
			"an operation": parts(plain+`,"/c":{"post":{"servers":[{"url":"`+other+`/x"}]}}`, auth),
			"a path":       parts(plain+`,"/c":{"servers":[{"url":"`+other+`"}],"get":{}}`, auth),
			"a variable":   parts(plain+`,"/c":{"get":{"servers":[{"url":"{all}","variables":{"all":{"default":"`+other+`"}}}]}}`, auth),
			"an enum":      parts(plain+`,"/c":{"get":{"servers":[{"url":"{all}","variables":{"all":{"enum":["`+other+`","https://a.test"]}}}]}}`, auth),
		} {
			for _, private := range []bool{false, true} {
				files, err := openapi.Folder(budget(t), "t", "api.json", []byte(doc), nil, private)
				if err != nil {
					t.Errorf("%s, %s: %v", name, place, err)
					continue
				}
				host := strings.TrimPrefix(strings.TrimPrefix(other, "http://"), "https://")
				for file, text := range files {
					if file != "README.md" && (bytes.Contains(text, []byte(other)) || host != "a.test" && bytes.Contains(text, []byte(host))) {
						t.Errorf("%s, %s: %s has it:\n%s", name, place, file, text)
					}
				}
				if readme := string(files["README.md"]); !strings.Contains(readme, "/c is left out: its server") || !strings.Contains(readme, host) {
					t.Errorf("%s, %s: README.md does not name it:\n%s", name, place, readme)
				}
			}
		}
		// Of the whole API, a server that is not public needs the user's word.
		doc := strings.Replace(parts(plain, auth), "https://a.test", other, 1)
		for _, private := range []bool{false, true} {
			files, err := openapi.Folder(budget(t), "t", "api.json", []byte(doc), nil, private)
			public := strings.Contains(other, "a.test") || strings.Contains(other, "evil")
			never := name == "metadata" || name == "shared"
			if allowed := public || private && !never; allowed != (err == nil) {
				t.Errorf("%s, with --private %v: %v", name, private, err)
			} else if !allowed && !never && !strings.Contains(err.Error(), "--private") {
				t.Errorf("%s: no hint: %v", name, err)
			} else if allowed && strings.Contains(string(files["policy.yaml"]), "private: true") == public {
				t.Errorf("%s: %s", name, files["policy.yaml"])
			}
		}
	}
}

// TestAnUnreadableServer of one operation leaves out that operation alone, in all places where a
// document can name it.
func TestAnUnreadableServer(t *testing.T) {
	for _, server := range []string{`{"url":"/v1"}`, `{"url":"v1"}`, `{"url":"//c.test"}`, `{"url":""}`, `{}`, `{"url":"ftp://c.test"}`, `{"url":"https://"}`, `{"url":"https://*.c.test"}`, `{"url":"https://%zz"}`, `{"url":"{x}/v1"}`, `{"url":"https://c.test:x"}`} {
		for place, doc := range map[string]string{
			"an operation": parts(`"/a":{"get":{}},"/c":{"post":{"servers":[`+server+`]}}`, ""),
			"a path":       parts(`"/c":{"servers":[`+server+`],"post":{}},"/a":{"get":{}}`, ""),
			"the document": strings.Replace(parts(`"/c":{"post":{}},"/a":{"get":{"servers":[{"url":"https://a.test"}]}}`, ""), `{"url":"https://a.test"}`, server, 1),
		} {
			files, err := openapi.Folder(budget(t), "t", "api.json", []byte(doc), nil, false)
			if err != nil {
				t.Errorf("%s of %s: %v", server, place, err)
			} else if got := names(t, files); len(got) != 1 || got[0] != "get_a" || !bytes.Contains(files["README.md"], []byte("POST /c is left out: ")) {
				t.Errorf("%s of %s: %q\n%s", server, place, got, files["README.md"])
			}
		}
	}
}

// TestDocumentsThatMultiply reads small documents whose reading multiplies what they have.
func TestDocumentsThatMultiply(t *testing.T) {
	wide := strings.Builder{}
	for i := range 2000 {
		fmt.Fprintf(&wide, `"p%d":{"type":"string"},`, i)
	}
	tower, operations, variables := strings.Builder{}, strings.Builder{}, strings.Builder{}
	for i := range 12 { // each level has the next one eight times
		tower.WriteString(fmt.Sprintf(`"s%d":{"properties":{`, i))
		for j := range 8 {
			fmt.Fprintf(&tower, `"%c":{"$ref":"#/components/schemas/s%d"},`, 'a'+j, i+1)
		}
		tower.WriteString(`"x":{}}},`)
	}
	for i := range 64 {
		fmt.Fprintf(&operations, `"/p%d":{"post":{"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/s0"}}}}}},`, i)
	}
	for i := range 20000 {
		fmt.Fprintf(&variables, "{v%d}", i)
	}
	enum := `{"enum":["` + strings.Repeat(`a","b`, 20000) + `"]}`
	end := `"s12":{}}}`
	for name, doc := range map[string]string{
		"references in a tower, wide below": parts(strings.TrimSuffix(operations.String(), ","), `,"components":{"schemas":{`+tower.String()+`"s12":{"properties":{`+strings.TrimSuffix(wide.String(), ",")+`}}}}`),
		"references to a large enum":        parts(strings.TrimSuffix(operations.String(), ","), `,"components":{"schemas":{"s0":{"properties":{`+strings.TrimSuffix(strings.Repeat(`"q":{"$ref":"#/components/schemas/e"},`, 1), ",")+`},"allOf":[`+strings.TrimSuffix(strings.Repeat(`{"$ref":"#/components/schemas/e"},`, 2000), ",")+`]},"e":`+enum+`,`+end),
		"variables in a path":               parts(`"/`+variables.String()+`":{"get":{}}`, ""),
	} {
		b := work.New(t.Context(), work.Limits{Steps: 1 << 20, Bytes: 64 << 20})
		_, err := openapi.Folder(b, "t", "api.json", []byte(doc), nil, false)
		if err == nil || !strings.Contains(err.Error(), work.ErrExceeded.Error()) {
			t.Errorf("%s: %d steps, %v", name, b.Steps(), err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := openapi.Folder(work.New(ended, work.ForSize(len(doc))), "t", "api.json", []byte(doc), nil, false); err == nil {
			t.Errorf("%s: it is read after its context has ended", name)
		}
	}
}

// parts returns a document with paths and further members.
func parts(paths, more string) string {
	return `{"openapi":"3.1.0","info":{"title":"T"},"servers":[{"url":"https://a.test"}],"paths":{` + paths + `}` + more + `}`
}

func TestFolderRefuses(t *testing.T) {
	many := strings.Builder{}
	for i := range 65 {
		fmt.Fprintf(&many, `,"/v1/p%d/x":{"get":{"tags":["t%d"]}}`, i, i%2)
	}
	for name, c := range map[string]struct{ spec, only, want string }{
		"nothing":              {spec: "", want: "api.json: it is empty"},
		"no map":               {spec: "[1]", want: "this is not an OpenAPI document of version 3"},
		"Swagger 2.0":          {spec: `{"swagger":"2.0"}`, want: "Swagger 2.0: OpenAPI 3 is needed\n  1 | {\"swagger\":\"2.0\"}\n    |            ^\nhint: convert it: npx swagger2openapi api.json -o openapi.json"},
		"version 4":            {spec: `{"openapi":"4.0"}`, want: "api.json:1:12: this is not an OpenAPI document of version 3"},
		"no paths":             {spec: `{"openapi":"3.1.0","webhooks":{"a":{"post":{}}}}`, want: "there is no operation"},
		"another file":         {spec: parts(`"/a":{"$ref":"a.yaml#/x"}`, ""), want: "the reference \"a.yaml#/x\" leads out of the document, and no other file is read"},
		"an operation's file":  {spec: parts(`"/a":{"get":{"$ref":"get.yaml"}}`, ""), want: "the reference \"get.yaml\" leads out"},
		"another file, deeper": {spec: parts(`"/a":{"get":{"parameters":[{"name":"q","in":"query","schema":{"items":{"$ref":"https://a.test/s.json"}}}]}}`, ""), want: "leads out of the document"},
		"nothing there":        {spec: parts(`"/a":{"get":{"parameters":[{"$ref":"#/components/parameters/none"}]}}`, ""), want: `the document has nothing at "#/components/parameters/none"`},
		"a circle":             {spec: parts(`"/a":{"$ref":"#/paths/~1a"}`, ""), want: "this reference leads back to itself"},
		"no server":            {spec: `{"openapi":"3.0.0","paths":{"/a":{"get":{}}}}`, want: `the address of the API, "", is not that of a server`},
		"a relative server":    {spec: `{"openapi":"3.0.0","servers":[{"url":"/v1"}],"paths":{"/a":{"get":{}}}}`, want: `hint: name the server in the document: "servers": [{"url": "https://`},
		"an open variable":     {spec: `{"openapi":"3.0.0","servers":[{"url":"https://{x}.a.test"}],"paths":{"/a":{"get":{}}}}`, want: "the variable {x} of the address has no default"},
		"a host that is none":  {spec: `{"openapi":"3.0.0","servers":[{"url":"https://*.a.test"}],"paths":{"/a":{"get":{}}}}`, want: "is not a host"},
		"an operation":         {spec: parts(`"/a":{"get":[]}`, ""), want: "api.json:1:99: an operation must be a map, not a list"},
		"a parameter":          {spec: parts(`"/a":{"get":{"parameters":[{"name":"q","in":"body"}]}}`, ""), want: `"in" is path, query, header or cookie`},
		"a scheme":             {spec: parts(`"/a":{"get":{"security":[{"none":[]}]}}`, ""), want: "the document has no security scheme of this name"},
		"unknown security":     {spec: parts(`"/a":{"get":{"security":[{"s":[]}]}}`, `,"components":{"securitySchemes":{"s":{"type":"mutualTLS"}}}`), want: "hint: GET /a is left out: its security scheme s"},
		"a name of two lines":  {spec: parts(`"/a":{"get":{"security":[{"s":[]}]}}`, `,"components":{"securitySchemes":{"s":{"type":"apiKey","in":"header","name":"a\nb"}}}`), want: "its security scheme s"},
		"a style":              {spec: parts(`"/{a}":{"get":{"parameters":[{"name":"a","in":"path","style":"matrix"}]}}`, ""), want: "hint: GET /{a} is left out: the parameter a has the style matrix"},
		"65 operations":        {spec: parts(many.String()[1:], ""), want: "there are 65 operations, and a module has at most 64 tools\n"},
		"its tags":             {spec: parts(many.String()[1:], ""), want: "the tags are t0 (33), t1 (32)"},
		"paths without tags":   {spec: parts(strings.ReplaceAll(many.String()[1:], `"tags"`, `"x"`), ""), want: "the paths are /v1/p0 (1), /v1/p1 (1), "},
		"no such tag":          {spec: parts(many.String()[1:], ""), only: "/v1/p", want: "--only /v1/p: there is no such tag, operation or path"},
	} {
		t.Run(name, func(t *testing.T) {
			var only []string
			if c.only != "" {
				only = []string{c.only}
			}
			_, err := openapi.Folder(budget(t), "t", "api.json", []byte(c.spec), only, true)
			if _, ok := err.(*config.Error); !ok || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestFolderOnly(t *testing.T) {
	spec := parts(`"/a":{"get":{"tags":["One"]},"post":{"operationId":"makeA"}},"/a/b":{"get":{}},"/ab":{"get":{"tags":["two"]}}`, "")
	for only, want := range map[string]string{"one": "get_a", "makeA": "make_a", "make_a": "make_a", "/a": "get_a make_a get_a_b", "/a/": "get_a_b", "two /a/b": "get_a_b get_ab"} {
		files, err := openapi.Folder(budget(t), "t", "api.json", []byte(spec), strings.Fields(only), true)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(names(t, files), " "); got != want {
			t.Errorf("--only %s: got %s, want %s", only, got, want)
		}
	}
}

// operations returns the lines of operations.py.
func operations(t *testing.T, files map[string][]byte) (all []map[string]json.RawMessage) {
	t.Helper()
	_, text, _ := strings.Cut(string(files["operations.py"]), "r'''\n")
	for line := range strings.Lines(strings.TrimSuffix(text, "'''\n")) {
		var operation map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &operation); err != nil || strings.Contains(line, "'''") {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, operation)
	}
	return all
}

func names(t *testing.T, files map[string][]byte) (names []string) {
	for _, operation := range operations(t, files) {
		names = append(names, strings.Trim(string(operation["name"]), `"`))
	}
	return names
}

// TestLargeSchemasFit: what a module may describe is divided among the operations.
func TestLargeSchemasFit(t *testing.T) {
	spec := strings.Builder{}
	for i := range 64 {
		fmt.Fprintf(&spec, `,"/p%d":{"post":{"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/a"}}}}}}`, i)
	}
	wide := strings.Builder{}
	for i := range 12 {
		fmt.Fprintf(&wide, `,"f%d":{"anyOf":[{"$ref":"#/components/schemas/a"},{"type":"string"}]}`, i)
	}
	files, err := openapi.Folder(budget(t), "t", "api.json", []byte(parts(spec.String()[1:], `,"components":{"schemas":{"a":{"properties":{`+wide.String()[1:]+`}}}}`)), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, operation := range operations(t, files) {
		total += bytes.Count(operation["input"], []byte("{"))
	}
	if total > 5000 || total < 1000 {
		t.Errorf("%d subschemas", total)
	}
	if !bytes.Contains(files["README.md"], []byte("- the schema of post_p0 is shortened, and the rest may be any value\n")) {
		t.Errorf("%s", files["README.md"])
	}
}

func FuzzFolder(f *testing.F) {
	documents, err := filepath.Glob("testdata/*/openapi.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, document := range documents {
		spec, err := os.ReadFile(document)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(spec), "")
	}
	f.Add(parts(`"/a":{"get":{"servers":[{"url":"http://a_b.test:1/?q"}],"security":[{"s":[]}]}}`, `,"components":{"securitySchemes":{"s":{"type":"apiKey","in":"header","name":"a"}}}`), "")
	f.Add(parts(`"/a":{"get":{"operationId":"'''\\","tags":["t"]}}`, ""), "t")
	f.Fuzz(func(t *testing.T, spec, only string) {
		if len(spec) > 20_000 {
			return
		}
		files, err := openapi.Folder(budget(t), "t", "api.yaml", []byte(spec), strings.Fields(only), true)
		if err != nil {
			if _, ok := err.(*config.Error); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if _, err := policy.Parse("policy.yaml", files["policy.yaml"]); err != nil {
			t.Errorf("%v\n%s", err, files["policy.yaml"])
		}
		found, subschemas := names(t, files), 0
		for _, operation := range operations(t, files) {
			if subschemas += bytes.Count(operation["input"], []byte("{")); !tool.IsObjectSchema(operation["input"]) {
				t.Errorf("%s", operation["input"])
			}
		}
		slices.Sort(found)
		if len(found) == 0 || len(found) > 64 || len(slices.Compact(found)) != len(found) || subschemas > 5000 {
			t.Errorf("%d subschemas, %q", subschemas, found)
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if !filepath.IsLocal(name) {
				t.Errorf("the file %q", name)
			}
		}
	})
}
