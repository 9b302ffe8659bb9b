package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/component"
	"github.com/starling-host/starling/internal/work"
)

// manifestName is the file that makes a folder an extension of IronClaw.
const manifestName = "manifest.toml"

// linkExtension returns the module of an extension of IronClaw: a component, and a manifest that
// lists its tools with their schemas. Files outside of the folder are not read.
func linkExtension(ctx context.Context, ref, dir, _ string) ([]byte, error) {
	broken := func(format string, args ...any) error {
		return &Error{Ref: ref, Reason: manifestName + ": " + fmt.Sprintf(format, args...)}
	}
	folder := &folder{root: dir}
	read := func(name string) ([]byte, error) {
		text, err := folder.read(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return nil, broken("%v", err)
		}
		return text, nil
	}
	text, err := read(manifestName)
	if err != nil {
		return nil, err
	}
	tables, err := parseManifest(work.For(ctx, len(text)), string(text))
	if err != nil {
		return nil, broken("%v", err)
	}
	var module string
	var actions []component.Action
	for _, t := range tables {
		switch t.name {
		case "runtime":
			module = t.values["module"]
		case "tools":
			a := component.Action{ID: t.values["id"], Description: t.values["description"], Schema: abi.JSON(`{"type":"object"}`)}
			if schema := t.values["input_schema_ref"]; schema != "" {
				if a.Schema, err = read(schema); err != nil {
					return nil, err
				}
				if !json.Valid(a.Schema) {
					return nil, broken("%s is not JSON", schema)
				}
			}
			actions = append(actions, a)
		case "tools.credentials":
			if host := audience.FindStringSubmatch(t.values["audience"]); host != nil && len(actions) > 0 {
				a := &actions[len(actions)-1]
				a.Hosts = append(a.Hosts, host[1])
				if bearer.MatchString(t.values["injection"]) && a.Address == "" {
					a.Address, a.Authorization = "https://"+host[1]+"/", "Bearer {{secret:"+strings.ToUpper(t.values["handle"])+"}}"
				}
			}
		}
	}
	if module == "" {
		return nil, broken("[runtime] names no module: only extensions in WebAssembly have one")
	}
	b, err := read(module)
	if err != nil {
		return nil, err
	}
	if len(b) > MaxModuleBytes {
		return nil, broken("%s has more than %d bytes", module, MaxModuleBytes)
	}
	return component.Link(work.For(ctx, len(b)), b, actions...)
}

// audience finds the host that a credential of a manifest is for.
var audience = regexp.MustCompile(`host = "([a-z0-9.:-]+)"`)

// bearer finds the one way in which extensions send a credential.
var bearer = regexp.MustCompile(`type = "header", name = "authorization", prefix = "Bearer "`)

// table is a table of a manifest: the strings in it, and other values as their text.
type table struct {
	name   string
	values map[string]string
}

// heldByLine is what a line of a manifest takes at most beside its text: an empty table.
const heldByLine = 256

// parseManifest reads the tables of a TOML file in the subset that manifests need: strings on one
// line. Other values may span several lines.
func parseManifest(b *work.Budget, text string) (tables []table, err error) {
	depth, quoted, i := 0, false, -1
	for line := range strings.SplitSeq(text, "\n") {
		i++
		line = strings.TrimSpace(line)
		if err := cmp.Or(b.Spend(1+len(line)/64), b.Hold(heldByLine+2*len(line))); err != nil {
			return nil, err
		}
		switch {
		case quoted || depth == 0 && strings.Contains(line, `"""`): // a long string, which manifests do not need
			quoted = quoted != (strings.Count(line, `"""`)%2 == 1)
			continue
		case depth > 0:
			depth += nesting(line)
			continue
		case line == "" || line[0] == '#':
			continue
		case line[0] == '[':
			name, _, _ := strings.Cut(strings.TrimLeft(line, "["), "]")
			tables = append(tables, table{strings.TrimSpace(name), map[string]string{}})
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("line %d is not a key with a value", i+1)
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if quote, err := strconv.QuotedPrefix(value); err == nil && value[0] == '"' {
			if value, err = strconv.Unquote(quote); err != nil {
				return nil, fmt.Errorf("line %d: %v", i+1, err)
			}
		} else {
			depth = nesting(value)
		}
		if len(tables) > 0 {
			tables[len(tables)-1].values[key] = value
		}
	}
	return tables, nil
}

// nesting is how many brackets a line of a value opens, outside of strings.
func nesting(line string) (n int) {
	in := byte(0)
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case in == '"' && c == '\\':
			i++
		case in != 0:
			if c == in {
				in = 0
			}
		case c == '"' || c == '\'':
			in = c
		case c == '#':
			return n
		case c == '[' || c == '{':
			n++
		case c == ']' || c == '}':
			n--
		}
	}
	return n
}
