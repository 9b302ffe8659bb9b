package openapi

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/runtime/egress"
)

var (
	//go:embed template/tool.py
	toolPy string
	//go:embed template/client.py
	clientPy []byte
	//go:embed template/README.md
	readme string
)

// files returns the files of the folder.
func (d *document) files() map[string][]byte {
	count := map[string]int{}
	for _, op := range d.operations {
		count[op.Server]++
	}
	server := slices.MaxFunc(slices.Sorted(maps.Keys(count)), func(a, b string) int { return cmp.Compare(count[a], count[b]) })
	files := map[string][]byte{"client.py": clientPy, "policy.yaml": d.policy()}
	run := "'INPUT' --tool " + d.operations[0].Name
	if i := slices.IndexFunc(d.operations, (*operation).isSimple); i >= 0 {
		op := d.operations[i]
		run = "'{}' --tool " + op.Name
		files["cases/"+strings.ReplaceAll(op.Name, "_", "-")+".txtar"] = op.testCase()
	}
	files["README.md"] = d.readme(run)
	data := "\"\"\"The operations of " + quotedText(d.title) + ", one a line.\"\"\"\n\nOPERATIONS = r'''\n"
	for _, op := range d.operations {
		if op.Server == server {
			op.Server = ""
		}
		data += strings.ReplaceAll(string(encode(op)), "'''", `\u0027\u0027\u0027`) + "\n"
	}
	files["operations.py"] = []byte(data + "'''\n")
	files["tool.py"] = []byte(strings.NewReplacer("TITLE", quotedText(d.title), `"https://api.example.com"`, string(encode(server))).Replace(toolPy))
	return files
}

// policy returns a policy for the hosts, tools and secrets of the operations.
func (d *document) policy() []byte {
	methods, headers, audiences := map[string][]string{}, map[string][]string{}, map[string][]string{}
	tools := ""
	for _, op := range d.operations {
		rule := "ask: true"
		if !changes[strings.ToLower(op.Method)] {
			rule = ""
		}
		tools += "    " + op.Name + ": {" + rule + "}\n"
		u, _ := url.Parse(op.Server)
		host, _ := json.Marshal(u.Hostname())
		if strings.Contains(u.Hostname(), ":") {
			host, _ = json.Marshal("[" + u.Hostname() + "]")
		}
		target := "      - host: " + string(host) + "\n"
		if u.Scheme == "http" {
			target += "        schemes: [http]\n"
		}
		if u.Port() != "" {
			target += "        ports: [" + u.Port() + "]\n"
		}
		if isPrivate(u.Hostname()) {
			target += "        private: true\n"
		}
		if !slices.Contains(methods[target], op.Method) {
			methods[target] = append(methods[target], op.Method)
		}
		for _, p := range op.Parameters { // a rule with methods allows other headers by name alone
			name := textproto.CanonicalMIMEHeaderKey(cmp.Or(p.Name, p.Key))
			if p.In == "header" && headerName().MatchString(name) && !egress.OrdinaryHeader(name) && !slices.Contains(headers[target], name) {
				headers[target] = append(headers[target], name)
			}
		}
		for _, s := range op.Secrets {
			place := s[0] + ": " + string(encode(s[1]))
			if s[0] == "cookie" {
				place = "header: Cookie"
			}
			binding := secretName().FindStringSubmatch(s[2])[1] + ", " + place
			if audience := string(encode(u.Host)); !slices.Contains(audiences[binding], audience) {
				audiences[binding] = append(audiences[binding], audience)
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "version: \"1.0\"\ndescription: What %s needs. Calls that may change something need your approval.\n\npermissions:\n  network:\n    allow:\n", d.tool)
	for _, target := range slices.Sorted(maps.Keys(methods)) {
		fmt.Fprintf(&b, "%s        methods: [%s]\n", target, strings.Join(slices.Sorted(slices.Values(methods[target])), ", "))
		if len(headers[target]) > 0 {
			fmt.Fprintf(&b, "        headers: %s\n", encode(slices.Sorted(slices.Values(headers[target]))))
		}
	}
	b.WriteString("\n  tools:\n" + tools)
	if len(audiences) > 0 {
		b.WriteString("\nsecrets:\n")
	}
	for _, binding := range slices.Sorted(maps.Keys(audiences)) {
		name, place, _ := strings.Cut(binding, ", ")
		fmt.Fprintf(&b, "  - {name: %s, audience: [%s], %s}\n", name, strings.Join(audiences[binding], ", "), place)
	}
	return []byte(b.String())
}

var secretName = lazy.Regexp(`\{\{secret:([A-Z0-9_]+)\}\}`)

// readme returns a page about the tool.
func (d *document) readme(run string) []byte {
	secrets, notes := map[string]bool{}, d.notes
	for _, op := range d.operations {
		for _, s := range op.Secrets {
			value := "..."
			if strings.HasPrefix(s[2], "Basic ") {
				value = "$(printf %s USER:PASSWORD | base64 | tr -d '\\n')"
			}
			name, place := secretName().FindStringSubmatch(s[2])[1], secretName().ReplaceAllString(s[2], "...")
			secrets[fmt.Sprintf("    export STARLING_SECRET_%s=%s  # %s %s: %s\n", name, value, s[0], s[1], place)] = true
		}
	}
	if len(secrets) == 0 {
		u, _ := url.Parse(d.operations[0].Server)
		notes = append(slices.Clip(notes), fmt.Sprintf(`the document asks for no secret. If the API does, add "Authorization": "Bearer {{secret:%[1]s}}" to HEADERS in tool.py, and `+
			`secrets: [{name: %[1]s, audience: ["%[2]s"], header: Authorization}] to policy.yaml`, d.secret("token"), u.Host))
	}
	if more := len(notes) - 12; more > 0 {
		notes = append(notes[:12:12], fmt.Sprintf("and %d more", more))
	}
	text := ""
	for _, note := range notes {
		text += "\n- " + display.Printable(note)
	}
	if text != "" {
		text = "\n## What differs from the document\n" + text + "\n"
	}
	return []byte(strings.NewReplacer("TOOL", d.tool, "COUNT", display.Plural(len(d.operations), "operation"), "TITLE", quotedText(d.title),
		"SECRETS", strings.Join(slices.Sorted(maps.Keys(secrets)), ""), "RUN", run, "NOTES\n", text).Replace(readme))
}

// isSimple reports whether an operation reads something, and needs no input.
func (op *operation) isSimple() bool {
	return op.Method == "GET" && !slices.ContainsFunc(op.properties, func(p property) bool { return p.required })
}

// testCase returns a case for a simple operation.
func (op *operation) testCase() []byte {
	query := ""
	for _, s := range op.Secrets {
		if s[0] == "query" {
			query += "&" + url.QueryEscape(s[1]) + "=" + url.QueryEscape(s[2])
		}
	}
	if query != "" {
		query = "?" + query[1:]
	}
	return fmt.Appendf(nil, `Calls %s without any input.
-- tool --
%s
-- input.json --
{}
-- effects.json --
[
  {"request": {"method": "GET", "url": %s}, "response": {"status": 200, "headers": {"Content-Type": "application/json"}, "json": {"fine": true}}}
]
-- output.json --
{
  "fine": true
}
`, op.Name, op.Name, encode(op.Server+op.Path+query))
}

// text returns the text of a node, or nothing.
func text(n *config.Node) string {
	if n == nil {
		return ""
	}
	s, _ := n.Text()
	return s
}

func isTrue(n *config.Node) bool { return n != nil && n.Value() == true }

// plain returns a text for a model: without invisible characters, and not too long.
func plain(n *config.Node, most int) string {
	return display.Clip(strings.TrimSpace(display.WithoutInvisible(text(n))), most)
}

// quotedText returns a text for a docstring or a heading.
func quotedText(s string) string { return strings.NewReplacer(`\`, "/", `"`, "'").Replace(s) }

// line returns a text as one line.
func line(n *config.Node, most int) string { return strings.Join(strings.Fields(plain(n, most)), " ") }

// encode returns a value as JSON, as it is read.
func encode(v any) []byte {
	doc, err := display.JSON(v, "")
	if err != nil {
		panic(err) // all values are of JSON
	}
	return doc
}

var (
	hump     = lazy.Regexp(`([a-z0-9])([A-Z])`)
	notWord  = lazy.Regexp(`[^a-z0-9]+`)
	notInKey = lazy.Regexp(`[^A-Za-z0-9_.-]+`)
)

// snake returns a name in small letters, digits and underscores; it may be empty.
func snake(name string) string {
	name = strings.Trim(notWord().ReplaceAllString(strings.ToLower(hump().ReplaceAllString(name, "${1}_$2")), "_"), "_")
	return name[:min(len(name), 64)]
}

// member returns a name for a member of an input that the APIs of all models take.
func member(name string) string {
	name = strings.Trim(notInKey().ReplaceAllString(name, "_"), "_")
	return cmp.Or(name[:min(len(name), 64)], "value")
}

// unique returns a name that is not used yet. used has the number to try next for each name.
func unique(name string, used map[string]int) string {
	free := name
	for used[free] > 0 {
		used[name]++
		end := fmt.Sprintf("_%d", used[name])
		free = name[:min(len(name), 64-len(end))] + end
	}
	used[free] = 1
	return free
}
