package guest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/schema"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/tool"
)

// sidecarOf returns the sidecar in a module, or nil, and the limits of a call within its bounds. The
// module of an interpreter also says how deep its call stack is.
func sidecarOf(wasm []byte, l sandbox.Limits) (*registry.Sidecar, sandbox.Limits, error) {
	side, err := registry.SidecarOf(wasm)
	if err != nil {
		return nil, l, &DescriptionError{Err: fmt.Errorf("has an invalid sidecar: %w", err)}
	}
	if about := interp.Of(wasm); about != nil && l.Depth == 0 {
		l.Depth = min(about.Depth, sandbox.MaxDepth)
	}
	if side != nil {
		bounds := &policy.Policy{Limits: side.Limits.Sandbox()}
		l = sandbox.Limits(policy.Narrow(event.SandboxLimits(sandbox.WithDefaults(l)), bounds))
	}
	return side, l, nil
}

// Limits returns limits of a call within the bounds of the module's sidecar, if it has one.
func Limits(wasm []byte, l sandbox.Limits) (sandbox.Limits, error) {
	_, l, err := sidecarOf(wasm, l)
	return l, err
}

// programInput is the schema of a WASI command whose sidecar has none.
const programInput = `{"type":"object","properties":{` +
	`"args":{"type":"array","items":{"type":"string"},"description":"The arguments, one word each."},` +
	`"stdin":{"type":"string","description":"The text on standard input."}},"additionalProperties":false}`

// withSidecar returns the description of a module with what its sidecar says. Doc is the module's
// own, or nil for a WASI command, which is named after its file unless the sidecar has a name.
func withSidecar(budget *work.Budget, doc []byte, side *registry.Sidecar, file string) ([]byte, error) {
	var d abi.Description
	if doc == nil {
		names := slices.Sorted(maps.Keys(side.Tools))
		if len(names) == 0 {
			names = []string{commandName(file)}
		}
		for _, name := range names {
			d.Tools = append(d.Tools, abi.ToolDescription{
				Name: name, Description: "A program: it receives arguments and standard input, and its standard output is the result.", InputSchema: abi.JSON(programInput),
			})
		}
	} else if clean, err := canon.JSON(doc); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	} else if err := schema.Decode(clean, &d); err != nil {
		return nil, err
	}
	for name, says := range side.Tools {
		if err := budget.Spend(len(d.Tools)); err != nil {
			return nil, err
		}
		i := slices.IndexFunc(d.Tools, func(t abi.ToolDescription) bool { return t.Name == name })
		switch {
		case i < 0:
			has := lists.Map(d.Tools, func(t abi.ToolDescription) string { return t.Name })
			return nil, fmt.Errorf("lacks the tool %q of its sidecar; it has: %s", name, strings.Join(has, ", "))
		case doc != nil && (says.Args != nil || says.Stdin != nil || says.Output != ""):
			return nil, fmt.Errorf("has a sidecar with args, stdin or output for the tool %q: these are for WASI commands", name)
		}
		t := &d.Tools[i]
		if says.Description != "" {
			t.Description = says.Description
		}
		if says.InputSchema != nil {
			t.InputSchema = abi.JSON(says.InputSchema)
		}
		if says.OutputSchema != nil {
			t.OutputSchema = abi.JSON(says.OutputSchema)
		}
		if says.Effects != nil {
			t.Effects = says.Effects
		}
		if says.Idempotent != nil {
			t.Idempotent = *says.Idempotent
		}
	}
	return json.Marshal(d)
}

// program is how a WASI command with a sidecar is called.
type program registry.SidecarTool

// receive fills a call with the arguments, the environment and the standard input, of at most so
// many bytes together. Each use of a member counts: a sidecar may name one as often as it likes.
func (p *program) receive(budget *work.Budget, call *sandbox.Call, input *canon.Doc, variables []byte, most uint64) error {
	members, _ := input.Members()
	size := uint64(0)
	var spent error
	value := func(m *canon.Doc) string {
		if spent = cmp.Or(spent, budget.Spend(len(m.JSON)/64+1), budget.Hold(len(m.JSON)+32)); spent != nil {
			return ""
		}
		text := textOf(m.JSON)
		if size += uint64(len(text)); size > most {
			return ""
		}
		return text
	}
	// fill replaces the placeholders of a template. Each member must be there.
	fill := func(template string) (text string, complete bool) {
		complete = true
		text = registry.Placeholder().ReplaceAllStringFunc(template, func(name string) string {
			if m := members[strings.Trim(name, "{}")]; m != nil && size <= most {
				return value(m)
			}
			complete = false
			return ""
		})
		return text, complete
	}
	call.Args = slices.Concat(p.Args...)
	switch {
	case p.InputSchema == nil:
		if list := members["args"]; list != nil {
			var args []string
			if err := json.Unmarshal(list.JSON, &args); err != nil {
				return err
			}
			call.Args = append(call.Args, args...)
		}
		call.Input = nil
		if text := members["stdin"]; text != nil {
			call.Input = []byte(value(text))
		}
	case p.Args != nil:
		call.Args = nil
		call.Input = nil
		for _, templates := range p.Args {
			var words []string
			complete := true
			for _, template := range templates {
				var list []json.RawMessage
				if m := members[strings.Trim(template, "{}")]; m != nil && registry.Placeholder().FindString(template) == template && budget.Spend(len(m.JSON)) == nil && json.Unmarshal(m.JSON, &list) == nil {
					for _, item := range list {
						words = append(words, value(&canon.Doc{JSON: item}))
					}
				} else {
					word, ok := fill(template)
					words, complete = append(words, word), complete && ok
				}
			}
			if complete {
				call.Args = append(call.Args, words...)
			}
		}
	}
	if p.Stdin != nil {
		text, _ := fill(*p.Stdin)
		call.Input = []byte(text)
	}
	if spent != nil {
		return fmt.Errorf("%w: arguments and standard input: %w", tool.ErrLimit, spent)
	}
	if size > most {
		return fmt.Errorf("%w: arguments and standard input of more than %d bytes", tool.ErrLimit, most)
	}
	for _, arg := range call.Args {
		if strings.Contains(arg, "\x00") {
			return tool.ToolDiscard(errors.New("an argument has a zero byte, which no program can receive"))
		}
	}
	named := canon.Split(variables) // an object, or nothing
	for _, name := range slices.Sorted(maps.Keys(named)) {
		text := textOf(named[name])
		if name != "" && !strings.ContainsAny(name, "=\x00") && !strings.Contains(text, "\x00") {
			call.Env = append(call.Env, name+"="+text)
		}
	}
	return nil
}

// textOf returns a string, or the JSON of another value.
func textOf(value []byte) (text string) {
	if json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	return text
}

// answer returns the output of a program that wrote this to its standard output.
func (p *program) answer(written []byte) (*canon.Doc, error) {
	switch {
	case p.Output == "json":
		return printed(written)
	case p.Output == "base64":
		written = []byte(base64.StdEncoding.EncodeToString(written))
	case !utf8.Valid(written):
		return nil, errors.New("guest: the program wrote bytes that are not UTF-8 text to its standard output; its sidecar can say: output: base64")
	}
	doc, err := json.Marshal(string(written))
	if err != nil {
		return nil, err
	}
	return canon.Parse(doc)
}

// maxStamped bounds the files of a stamp.
const maxStamped = 10_000

// Stamp returns a number that changes with the name, the size or the time of a tool's files: of each path, or
// of the files in its folder without hidden ones and those that builds and runs write there. A missing
// file is not part of it. It is never zero.
func Stamp(paths ...string) uint64 {
	sum, seen := fnv.New64a(), 0
	for _, root := range paths {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			name, named := entry.Name(), path == root
			hidden := strings.HasPrefix(name, ".")
			switch {
			case entry.IsDir() && !named && (hidden || slices.Contains([]string{"node_modules", "target", "build", "__pycache__"}, name)):
				return fs.SkipDir
			case entry.IsDir(), !named && (hidden || strings.HasSuffix(name, ".wasm") || strings.Contains(name, ".db")):
				return nil
			}
			if info, err := entry.Info(); err == nil {
				fmt.Fprintln(sum, path, info.Size(), info.ModTime().UnixNano())
			}
			if seen++; seen > maxStamped {
				return fs.SkipAll
			}
			return nil
		})
	}
	return cmp.Or(sum.Sum64(), 1)
}
