package openapi

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/host/policy"
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
	readsAlone := func(op *operation) bool { // reads something, and needs no input
		return op.Method == "GET" && !slices.ContainsFunc(op.properties, func(p property) bool { return p.required })
	}
	if i := slices.IndexFunc(d.operations, readsAlone); i >= 0 {
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

// policy returns a policy for the operations, which have one host, and for their secrets.
func (d *document) policy() []byte {
	u, _ := url.Parse(d.operations[0].Server)
	rule := policy.Rule{Host: strings.TrimSuffix(u.Host, ":"+u.Port()), Schemes: []string{u.Scheme}, Private: isPrivate(u.Hostname())}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		rule.Ports = []uint16{uint16(port)}
	}
	tools, secrets := "", map[string]bool{}
	for _, op := range d.operations {
		ask := ""
		if changes[strings.ToLower(op.Method)] {
			ask = "ask: true"
		}
		tools += "    " + op.Name + ": {" + ask + "}\n"
		rule.Methods = append(rule.Methods, op.Method)
		for _, p := range op.Parameters { // a rule with methods allows other headers by name alone
			name := textproto.CanonicalMIMEHeaderKey(cmp.Or(p.Name, p.Key))
			if p.In == "header" && headerName().MatchString(name) && !egress.OrdinaryHeader(name) {
				rule.Headers = append(rule.Headers, name)
			}
		}
		for _, s := range op.Secrets {
			b := policy.Binding{Name: secretName().FindStringSubmatch(s[2])[1], Audience: []string{u.Host}}
			switch s[0] {
			case "header":
				b.Header = s[1]
			case "cookie":
				b.Header = "Cookie"
			default:
				b.Query = s[1]
			}
			secrets["  - "+config.Flow(b)+"\n"] = true
		}
	}
	for _, list := range []*[]string{&rule.Methods, &rule.Headers} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	text := fmt.Sprintf("version: \"1.0\"\ndescription: What %s needs. Calls that may change something need your approval.\n\n"+
		"permissions:\n  network:\n    allow:\n      - %s\n\n  tools:\n%s", d.tool, rule.YAML(), tools)
	if len(secrets) > 0 {
		text += "\nsecrets:\n" + strings.Join(slices.Sorted(maps.Keys(secrets)), "")
	}
	return []byte(text)
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
