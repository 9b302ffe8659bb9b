package openapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
)

// maxTools is the most that a module may have, see host/guest.
const maxTools = 64

// changes are the methods that become tools. Those that may change something are true.
var changes = map[string]bool{"get": false, "head": false, "put": true, "post": true, "delete": true, "patch": true}

// document is an OpenAPI document.
type document struct {
	budget            *work.Budget
	private           bool // operations of servers that are not public become tools, too
	tool, file, title string
	root              *config.Node
	refs              map[string]*config.Node
	operations        []*operation
	noServer          error    // the first address that could not be read
	notes             []string // what became no tool, or is shorter than in the document
}

// operation is an operation of the document. Its exported fields are its line in operations.py.
type operation struct {
	node, item *config.Node
	id         string
	tags       []string
	properties []property // of the input
	depth      int        // to which schemas are translated
	size       int        // of the schemas, see translate
	cut        bool

	Name        string          `json:"name"`
	Description string          `json:"description"`
	Method      string          `json:"method"`
	Server      string          `json:"server,omitempty"` // if it is not that of tool.py
	Path        string          `json:"path"`
	Parameters  []parameter     `json:"parameters,omitempty"`
	Body        *body           `json:"body,omitempty"`
	Secrets     [][3]string     `json:"secrets,omitempty"` // place, name, value with a placeholder
	Input       json.RawMessage `json:"input"`
}

type parameter struct {
	Key   string `json:"key"`            // in the input
	Name  string `json:"name,omitempty"` // if it is another
	In    string `json:"in"`
	Style string `json:"style,omitempty"` // comma, space, pipe, deep, pairs or json
}

type body struct {
	Key   string `json:"key"`
	Kind  string `json:"kind"` // json, form, multipart, text or file
	Type  string `json:"type"`
	Style string `json:"style,omitempty"` // deep
}

// property is a member of an operation's input.
type property struct {
	key, description string
	required         bool
	node             *config.Node
	schema           map[string]any // instead of node
	multipart        bool           // the binary values below are files
}

// Folder returns the files of a module that has one tool for each operation of an OpenAPI document,
// in JSON or YAML. only chooses operations by tag, by operationId or tool, or by the beginning of
// the path. All operations are of one host, which alone gets the secrets; private allows one that is
// not public. Errors are of type [*config.Error] and mention the file.
//
// The document is a stranger's: what reading it costs is drawn from the budget.
func Folder(b *work.Budget, name, file string, spec []byte, only []string, private bool) (map[string][]byte, error) {
	root, err := config.ParseData(b, file, spec)
	if err != nil {
		return nil, err
	}
	version := root.At("openapi")
	switch swagger := root.At("swagger"); {
	case swagger != nil:
		return nil, swagger.Errorf("convert it: npx swagger2openapi "+file+" -o openapi.json", "this is a document of Swagger 2.0: OpenAPI 3 is needed")
	case version == nil || !strings.HasPrefix(fmt.Sprint(version.Value()), "3"):
		return nil, cmp.Or(version, root).Errorf(`it begins with: openapi: "3.1.0"`, "this is not an OpenAPI document of version 3")
	}
	d := &document{budget: b, private: private, tool: name, file: file, title: cmp.Or(line(root.At("info", "title"), 80), name), root: root, refs: map[string]*config.Node{}}
	if err := d.collect(); err != nil {
		return nil, err
	}
	if err := d.choose(only); err != nil {
		return nil, err
	}
	if err := d.keep(d.build); err != nil {
		return nil, err
	}
	d.oneHost()
	if err := d.fit(); err != nil {
		return nil, err
	}
	size := 0
	for _, op := range d.operations {
		size += len(op.Input)
	}
	host := work.For(b.Context(), size) // as the host will, of the module's description
	if err := d.keep(func(op *operation) error {
		_, err := tool.CompileSchema(host, op.Input)
		if err != nil {
			return leftOut("the schema of its input " + err.Error())
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if len(d.operations) == 0 && d.noServer != nil {
		return nil, d.noServer
	}
	if len(d.operations) == 0 {
		return nil, cmp.Or(root.At("paths"), root).Errorf(strings.Join(d.notes[:min(len(d.notes), 1)], ""), "there is no operation that can become a tool")
	}
	return d.files(), nil
}

// leftOut is the reason why an operation does not become a tool.
type leftOut string

func (reason leftOut) Error() string { return string(reason) }

// keep removes the operations that do leaves out, and ends at another error.
func (d *document) keep(do func(*operation) error) error {
	kept := d.operations[:0]
	for _, op := range d.operations {
		if err := d.spend(op.node, 1); err != nil {
			return err
		}
		switch err := do(op).(type) {
		case nil:
			kept = append(kept, op)
		case leftOut:
			d.notes = append(d.notes, fmt.Sprintf("%s %s is left out: %s", op.Method, op.Path, err))
		default:
			return err
		}
	}
	d.operations = kept
	return nil
}

// spend charges the budget, and returns its error as one about a node.
func (d *document) spend(n *config.Node, steps int) error {
	if err := d.budget.Spend(steps); err != nil {
		return cmp.Or(n, d.root).Errorf("cut out what you need of the document: npx @redocly/cli split "+d.file+" --outDir parts", "%v", err)
	}
	return nil
}

// follow returns the node that a reference stands for, or n itself. It reads no other files.
func (d *document) follow(n *config.Node) (*config.Node, error) {
	for range 32 {
		if err := d.spend(n, 1); err != nil {
			return nil, err
		}
		at := n.At("$ref")
		ref := text(at)
		if at == nil || ref == "" {
			return n, nil
		}
		target, known := d.refs[ref]
		if !known {
			pointer, isPointer := strings.CutPrefix(ref, "#/")
			if !isPointer {
				return nil, at.Errorf("bundle the document into one file: npx @redocly/cli bundle "+d.file+" -o bundled.yaml",
					"the reference %q leads out of the document, and no other file is read", display.Clip(ref, 100))
			}
			target = d.root
			for _, token := range strings.Split(pointer, "/") {
				if plain, err := url.PathUnescape(token); err == nil {
					token = plain
				}
				items := target.Items()
				if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(items) {
					target = items[i]
				} else {
					target = target.At(strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
				}
			}
			d.refs[ref] = target
		}
		if target == nil {
			return nil, at.Errorf("", "the document has nothing at %q", display.Clip(ref, 100))
		}
		n = target
	}
	return nil, n.Errorf("", "this reference leads back to itself")
}

// collect lists the operations of the document, and names them.
func (d *document) collect() error {
	seen := map[string]int{}
	for key, item := range d.root.At("paths").Pairs() {
		path := text(key)
		if !strings.HasPrefix(path, "/") {
			continue // an extension
		}
		item, err := d.follow(item)
		if err != nil {
			return err
		}
		for key, node := range item.Pairs() {
			method := text(key)
			if _, known := changes[method]; !known {
				continue
			}
			if node, err = d.follow(node); err != nil {
				return err
			}
			if node.Kind() != config.Map {
				return node.Errorf("", "an operation must be a map, not %v", node.Kind())
			}
			op := &operation{node: node, item: item, id: text(node.At("operationId")), Method: strings.ToUpper(method), Path: path, tags: lists.Map(node.At("tags").Items(), text)}
			op.Name = cmp.Or(snake(op.id), snake(method+path), method)
			if op.Name[0] <= '9' {
				op.Name = method + "_" + op.Name
			}
			op.Name = unique(op.Name, seen)
			d.operations = append(d.operations, op)
		}
	}
	return nil
}

// choose keeps the operations that only names, and refuses more than a module may have.
func (d *document) choose(only []string) error {
	at := cmp.Or(d.root.At("paths"), d.root)
	tags, paths := map[string]int{}, map[string]int{}
	for _, op := range d.operations {
		for _, tag := range op.tags {
			tags[tag]++
		}
	}
	for depth := 2; len(paths) < 2 && depth < 5; depth++ { // paths often have a beginning in common
		clear(paths)
		for _, op := range d.operations {
			parts := strings.Split(op.Path, "/")
			paths[strings.Join(parts[:min(len(parts), depth)], "/")]++
		}
	}
	hint, groups := "choose some: --only TAG, --only OPERATION or --only /PATH; the tags are ", tags
	if len(tags) < 2 {
		hint, groups = "choose some: --only OPERATION or --only /PATH; the paths are ", paths
	}
	for i, name := range slices.Sorted(maps.Keys(groups)) {
		if i == 60 {
			hint += "and more  "
			break
		}
		hint += fmt.Sprintf("%s (%d), ", display.Clip(name, 40), groups[name])
	}
	hint = strings.TrimRight(hint, ", ")
	met := map[string]bool{}
	d.operations = slices.DeleteFunc(d.operations, func(op *operation) bool {
		keep := len(only) == 0
		for _, want := range only {
			if op.matches(want) {
				keep, met[want] = true, true
			}
		}
		return !keep
	})
	for _, want := range only {
		if !met[want] {
			return at.Errorf(hint, "--only %s: there is no such tag, operation or path", want)
		}
	}
	if len(d.operations) > maxTools {
		return at.Errorf(hint, "there are %d operations, and a module has at most %d tools", len(d.operations), maxTools)
	}
	return nil
}

func (op *operation) matches(want string) bool {
	if prefix, isPath := strings.CutSuffix(want, "/"); isPath || strings.HasPrefix(want, "/") {
		return op.Path == want || strings.HasPrefix(op.Path, prefix+"/")
	}
	return want == op.id || want == op.Name || slices.ContainsFunc(op.tags, func(tag string) bool { return strings.EqualFold(tag, want) })
}

// build fills an operation, except for the schema of its input.
func (d *document) build(op *operation) (err error) {
	summary, description := plain(op.node.At("summary"), maxNote), plain(op.node.At("description"), maxDescription)
	if strings.HasPrefix(description, strings.TrimSuffix(summary, ".")) {
		summary = ""
	}
	op.Description = cmp.Or(strings.TrimSpace(summary+"\n\n"+description), op.Method+" "+op.Path)
	if isTrue(op.node.At("deprecated")) {
		op.Description = "Deprecated. " + op.Description
	}
	if op.Server, err = d.address(op); err != nil {
		return err
	}
	keys := map[string]int{}
	if err := d.parameters(op, keys); err != nil {
		return err
	}
	if err := d.body(op, keys); err != nil {
		return err
	}
	return d.secrets(op)
}

var variable = lazy.Regexp(`\{([^{}]+)\}`)

// address returns the address of the server of an operation.
func (d *document) address(op *operation) (address string, err error) {
	var server *config.Node
	for _, n := range []*config.Node{op.node, op.item, d.root} {
		if items := n.At("servers").Items(); server == nil && len(items) > 0 {
			server = items[0]
		}
	}
	const hint = `name the server in the document: "servers": [{"url": "https://api.example.com/v1"}]`
	unreadable := func(hint, format string, args ...any) error {
		d.noServer = cmp.Or(d.noServer, cmp.Or(server.At("url"), server, d.root).Errorf(hint, format, args...))
		return leftOut(fmt.Sprintf(format, args...))
	}
	address = variable().ReplaceAllStringFunc(text(server.At("url")), func(name string) string {
		v := server.At("variables", name[1:len(name)-1])
		value := v.At("default")
		if items := v.At("enum").Items(); value == nil && len(items) > 0 {
			value = items[0]
		}
		if value == nil {
			err = cmp.Or(err, unreadable("", "the variable %s of the address has no default", display.Clip(name, 80)))
			return ""
		}
		return fmt.Sprint(value.Value())
	})
	if err != nil {
		return "", err
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return "", unreadable(hint, "the address of the API, %q, is not that of a server", display.Clip(address, 100))
	}
	if _, err := egress.ParseRule(u.Host); err != nil || strings.ContainsAny(u.Host, "*") {
		return "", unreadable(hint, "%q is not a host", display.Clip(u.Host, 100))
	}
	if why := egress.RefusedAddress(u.Hostname(), true); why != "" {
		return "", leftOut("its server " + u.Host + " has an address that no policy can allow (" + why + ")")
	}
	if isPrivate(u.Hostname()) && !d.private {
		return "", leftOut("its server " + u.Host + " is not public, and a document of somebody else can name any server of your network: if you trust it, add --private")
	}
	u = &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host), Path: u.Path}
	return strings.TrimRight(u.String(), "/"), nil
}

// localNames are the ends of names that are not in the public DNS (RFC 6761, RFC 6762, RFC 8375 and
// what networks use).
var localNames = []string{".localhost", ".local", ".internal", ".intranet", ".private", ".corp", ".home", ".lan", ".home.arpa", ".localdomain", ".cluster.local", ".consul"}

// isPrivate reports whether a host is known not to be public without asking for its addresses.
func isPrivate(host string) bool {
	host = strings.ToLower(host)
	if _, err := netip.ParseAddr(host); err == nil {
		return egress.RefusedAddress(host, false) != ""
	}
	return !strings.Contains(host, ".") || slices.ContainsFunc(localNames, func(end string) bool { return strings.HasSuffix(host, end) })
}

// oneHost keeps the operations of the host that has most of them: it alone gets the secrets. The
// document could name any other host for one operation.
func (d *document) oneHost() {
	if len(d.operations) == 0 {
		return
	}
	count := map[string]int{}
	origin := func(op *operation) string {
		u, _ := url.Parse(op.Server)
		return u.Scheme + "://" + u.Host
	}
	for _, op := range d.operations {
		count[origin(op)]++
	}
	chosen := origin(slices.MaxFunc(d.operations, func(a, b *operation) int { return count[origin(a)] - count[origin(b)] }))
	var notes []string
	for _, op := range d.operations {
		if at := origin(op); at != chosen && count[at] > 0 {
			more := ""
			if count[at] > 1 {
				more = fmt.Sprintf(" and %d more operations", count[at]-1)
			}
			notes = append(notes, fmt.Sprintf("%s %s%s is left out: its server is %s, and a module has the secrets of one, here %s", op.Method, op.Path, more, at, chosen))
			count[at] = 0
		}
	}
	d.notes = append(notes, d.notes...)
	d.operations = slices.DeleteFunc(d.operations, func(op *operation) bool { return origin(op) != chosen })
}

// parameters adds the parameters of an operation to its input.
func (d *document) parameters(op *operation, keys map[string]int) (err error) {
	type place struct{ in, name string }
	nodes := map[place]*config.Node{}
	var order []place
	for _, n := range slices.Concat(op.node.At("parameters").Items(), op.item.At("parameters").Items()) {
		if n, err = d.follow(n); err != nil {
			return err
		}
		_ = d.budget.Spend(len(op.Path) / 64) // searched for each parameter
		p := place{text(n.At("in")), text(n.At("name"))}
		if p.name == "" || !slices.Contains([]string{"path", "query", "header", "cookie"}, p.in) {
			return n.Errorf("", `a parameter has a name, and "in" is path, query, header or cookie`)
		}
		elsewhere := p.in == "header" && slices.Contains([]string{"accept", "content-type", "authorization"}, strings.ToLower(p.name))
		if nodes[p] == nil && !elsewhere && (p.in != "path" || strings.Contains(op.Path, "{"+p.name+"}")) {
			nodes[p] = n // that of an operation comes before that of its path
			order = append(order, p)
		}
	}
	for _, m := range variable().FindAllStringSubmatch(op.Path, -1) {
		if err := d.spend(op.node, len(order)); err != nil {
			return err
		}
		if p := (place{"path", m[1]}); !slices.Contains(order, p) {
			order = append(order, p) // the document does not describe it
		}
	}
	for _, p := range order {
		n := nodes[p]
		member := property{key: unique(member(p.name), keys), description: plain(n.At("description"), maxNote), required: p.in == "path" || isTrue(n.At("required")), node: n.At("schema")}
		if n == nil {
			member.schema = map[string]any{"type": "string"}
		}
		for _, media := range n.At("content").Pairs() {
			member.node = cmp.Or(member.node, media.At("schema"))
		}
		param := parameter{Key: member.key, Name: p.name, In: p.in}
		if param.Name == param.Key {
			param.Name = ""
		}
		explode := isTrue(n.At("explode"))
		switch style := text(n.At("style")); {
		case n.At("content") != nil:
			param.Style = "json"
		case p.in == "path" || p.in == "header":
			if style == "label" || style == "matrix" {
				return leftOut(fmt.Sprintf("the parameter %s has the style %s", p.name, style))
			}
			if explode {
				param.Style = "pairs"
			}
		case style == "deepObject":
			param.Style = "deep"
		case style == "" || style == "form":
			if n.At("explode") != nil && !explode {
				param.Style = "comma"
			}
		case !explode:
			param.Style = map[string]string{"spaceDelimited": "space", "pipeDelimited": "pipe"}[style]
		}
		op.Parameters = append(op.Parameters, param)
		op.properties = append(op.properties, member)
	}
	return nil
}

var jsonType = lazy.Regexp(`^[a-z]+/([^;]*\+)?json$`)

// body adds the body of a request to the input of an operation.
func (d *document) body(op *operation, keys map[string]int) error {
	n, err := d.follow(op.node.At("requestBody"))
	if err != nil {
		return err
	}
	kinds := []string{"json", "form", "multipart", "text", "file"} // the first of them that the API takes
	best, media := len(kinds), (*config.Node)(nil)
	b := &body{}
	for key, value := range n.At("content").Pairs() {
		base, _, _ := strings.Cut(strings.ToLower(text(key)), ";")
		rank, typ := 4, text(key)
		switch base = strings.TrimSpace(base); {
		case base == "*/*":
			rank, typ = 0, "application/json"
		case jsonType().MatchString(base):
			rank = 0
		case base == "application/x-www-form-urlencoded":
			rank = 1
		case base == "multipart/form-data":
			rank = 2
		case strings.HasPrefix(base, "text/"):
			rank, typ = 3, strings.ReplaceAll(typ, "*", "plain")
		case strings.Contains(base, "*"):
			typ = "application/octet-stream"
		}
		if rank < best {
			best, media = rank, value
			b.Kind, b.Type = kinds[rank], typ
		}
	}
	if media == nil {
		return nil
	}
	b.Key = unique("body", keys)
	op.Body = b
	member := property{key: b.Key, description: plain(n.At("description"), maxNote), required: isTrue(n.At("required")), node: media.At("schema"), multipart: best == 2}
	for _, encoding := range media.At("encoding").Pairs() {
		if best == 1 && text(encoding.At("style")) == "deepObject" {
			b.Style = "deep"
		}
	}
	if best == 3 {
		member.schema = map[string]any{"type": "string"}
	} else if best == 4 {
		member.schema = fileSchema("")
	}
	op.properties = append(op.properties, member)
	return nil
}

// headerName matches the names that policies take; those of queries and cookies are held to it too.
var headerName = lazy.Regexp("^[A-Za-z0-9!#$%&'*+.^_|~-]{1,128}$")

// secrets puts placeholders into an operation, for the first way to authenticate that the host can do.
func (d *document) secrets(op *operation) (err error) {
	for _, way := range cmp.Or(op.node.At("security"), d.root.At("security")).Items() {
		op.Secrets, err = nil, nil
		for key := range way.Pairs() {
			scheme, wrong := d.follow(d.root.At("components", "securitySchemes", text(key)))
			if wrong != nil {
				return wrong
			}
			if scheme == nil {
				return key.Errorf("", "the document has no security scheme of this name")
			}
			placeholder := "{{secret:" + d.secret(text(key)) + "}}"
			kind := text(scheme.At("type"))
			if kind == "http" {
				kind = strings.ToLower(text(scheme.At("scheme")))
			}
			switch in := text(scheme.At("in")); {
			case kind == "apiKey" && slices.Contains([]string{"query", "header", "cookie"}, in) && headerName().MatchString(text(scheme.At("name"))):
				op.Secrets = append(op.Secrets, [3]string{in, text(scheme.At("name")), placeholder})
			case kind == "basic":
				op.Secrets = append(op.Secrets, [3]string{"header", "Authorization", "Basic " + placeholder})
			case kind == "bearer", kind == "oauth2", kind == "openIdConnect":
				op.Secrets = append(op.Secrets, [3]string{"header", "Authorization", "Bearer " + placeholder})
			default:
				err = leftOut("its security scheme " + text(key) + " is none that a placeholder can stand in for")
			}
		}
		if err == nil {
			return nil
		}
	}
	return err
}

// secret returns the name of the secret for a security scheme: with the tool's name, because the
// schemes of many documents have the same names.
func (d *document) secret(scheme string) string {
	name := cmp.Or(snake(scheme), "token")
	if own := snake(d.tool); !strings.HasPrefix(name, own+"_") {
		name = own + "_" + name
	}
	return strings.ToUpper(name[:min(len(name), 64)])
}
