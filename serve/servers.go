package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/runtime/agentfile"
)

// Server is a server of the Model Context Protocol whose tools [LocalTools] have.
type Server struct {
	// Name stands before the names of its tools, with an underscore between.
	Name string

	// Either the words of the command that starts the server, or its address.
	Command []string
	URL     string

	// Env are variables for the command, with $NAME for those of this process.
	Env map[string]string
}

var (
	namedServer = regexp.MustCompile(`^([a-z][a-z0-9-]{0,31})=`)
	assignment  = regexp.MustCompile(`^([A-Z_][A-Z0-9_]*)=(.*)$`)
	launchers   = regexp.MustCompile(`^(npx|npm|bunx?|pnpm|yarn|deno|node|uvx?|pipx|python[0-9.]*|docker|podman|go|env|sh|bash)$`)
	subcommands = regexp.MustCompile(`^(exec|run|dlx|x|tool|start)$`)
	outOfName   = regexp.MustCompile(`[^a-z0-9]+`)
)

// ParseServer reads what names a server: a command line, which is split into words without
// a shell, or an http or https URL. NAME= before it gives the server a name, in lower case;
// otherwise it has one after its package, program or host. Assignments in upper case before
// a command are variables for it.
func ParseServer(text string) (Server, error) {
	var s Server
	rest := strings.TrimSpace(text)
	if m := namedServer.FindStringSubmatch(rest); m != nil {
		s.Name, rest = m[1], rest[len(m[0]):]
	}
	if strings.HasPrefix(rest, "http://") || strings.HasPrefix(rest, "https://") {
		u, err := url.Parse(rest)
		if err != nil || u.Host == "" {
			return s, fmt.Errorf("%q is no URL", rest)
		}
		if s.URL = rest; s.Name == "" {
			s.Name = nameOf(strings.Split(strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(u.Hostname(), "www."), "api."), "mcp."), ".")[0])
		}
		return s, nil
	}
	words, err := splitWords(rest)
	if err != nil {
		return s, err
	}
	for len(words) > 0 && assignment.MatchString(words[0]) {
		m := assignment.FindStringSubmatch(words[0])
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		s.Env[m[1]], words = m[2], words[1:]
	}
	if len(words) == 0 {
		return s, errors.New("there is no command")
	}
	if s.Command = words; s.Name == "" {
		named := words[0]
		if base := strings.TrimSuffix(path.Base(filepath.ToSlash(named)), ".exe"); launchers.MatchString(base) {
			for _, word := range words[1:] {
				if !strings.HasPrefix(word, "-") && !subcommands.MatchString(word) {
					named = word
					break
				}
			}
		}
		s.Name = nameOf(named)
	}
	return s, nil
}

// nameOf returns the name of a server after its package, program or host, without its version
// and without the words that most have: server-files@1.2 is files.
func nameOf(of string) string {
	base := path.Base(filepath.ToSlash(of))
	base, _, _ = strings.Cut(base, "@")
	switch ext := path.Ext(base); ext {
	case ".js", ".mjs", ".cjs", ".ts", ".py", ".exe", ".sh":
		base = strings.TrimSuffix(base, ext)
	}
	words := strings.Split(strings.Trim(outOfName.ReplaceAllString(strings.ToLower(base), "-"), "-"), "-")
	words = slices.DeleteFunc(words, func(w string) bool { return w == "mcp" || w == "server" })
	name := strings.Join(words, "-")
	if len(name) > 32 {
		name = strings.Trim(name[:32], "-")
	}
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return "server"
	}
	return name
}

// splitWords splits a command line as a POSIX shell does, with quotes and backslashes. It
// expands nothing.
func splitWords(line string) (words []string, err error) {
	var word strings.Builder
	var quote rune
	inWord, escaped := false, false
	for _, r := range line {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune("\"\\$`", r) {
				word.WriteByte('\\')
			}
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, inWord = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("the command line ends inside of a quotation: %s", line)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// identity is by what a server is known again: its command, or its address.
func (s Server) identity() string {
	if s.URL != "" {
		return s.URL
	}
	doc, _ := json.Marshal(s.Command) // strings cannot fail
	return string(doc)
}

// Pins is the file in which a user's servers are pinned: what each of their tools said of
// itself when it was accepted, by hash. A server is accepted when it is first seen. From then
// on a tool that says something else is refused until the user accepts it.
type Pins struct{ Path string }

// DefaultPins returns the file of the current user, servers.json in the folder of the
// program's configuration.
func DefaultPins() (Pins, error) {
	base, err := os.UserConfigDir()
	return Pins{filepath.Join(base, "starling-host", "servers.json")}, err
}

// pinned are the tools of one server as they were accepted, by name.
type pinned map[string]pin

type pin struct {
	Hash        string `json:"hash"` // see agentfile.Definition.Hash
	Description string `json:"description"`
}

// pinsFile is the document in the file.
type pinsFile struct {
	Servers map[string]pinned `json:"servers"` // by identity
}

func (p Pins) read() (pinsFile, error) {
	var all pinsFile
	doc, err := os.ReadFile(p.Path)
	if err == nil {
		err = json.Unmarshal(doc, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return all, fmt.Errorf("%s, which has the servers that were accepted, cannot be read: %w", p.Path, err)
	}
	if all.Servers == nil {
		all.Servers = map[string]pinned{}
	}
	return all, nil
}

// Change is one tool of a server that is not as it was when the server was accepted.
type Change struct {
	Tool        string
	Before, Now *string // the descriptions; nil if there was, or is, no such tool
}

// Changes connects to a server and returns what has changed since it was accepted, and a
// function that accepts it as it is now. For a server that was never seen all is new.
func (p Pins) Changes(ctx context.Context, s Server) (changes []Change, accept func() error, err error) {
	before, err := p.pinnedTools(s)
	if err != nil {
		return nil, nil, err
	}
	db := starling.Over(nil, starling.Options{})
	defer db.Close()
	server, err := db.Connect(ctx, starling.ServerOptions{MCP: s.config()})
	if err != nil {
		return nil, nil, err
	}
	now := definitions(server)
	gone := maps.Clone(before)
	for _, d := range now {
		was, ok := before[d.Name]
		delete(gone, d.Name)
		if before != nil && before.check(d) == nil {
			continue
		}
		change := Change{Tool: d.Name, Now: &d.Description}
		if ok {
			change.Before = &was.Description
		}
		changes = append(changes, change)
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		was := gone[name].Description
		changes = append(changes, Change{Tool: name, Before: &was})
	}
	return changes, func() error { return p.accept(s, now) }, nil
}

// config is how to connect to the server.
func (s Server) config() agentfile.MCP {
	return agentfile.MCP{Command: s.Command, URL: s.URL, Env: s.Env, Prefix: s.Name + "_"}
}

// pinnedTools returns the accepted tools of a server, nil if it was never seen.
func (p Pins) pinnedTools(s Server) (pinned, error) {
	all, err := p.read()
	return all.Servers[s.identity()], err
}

// accept pins what a server says now.
func (p Pins) accept(s Server, now []agentfile.Definition) error {
	all, err := p.read()
	if err != nil {
		return err
	}
	tools := pinned{}
	for _, d := range now {
		tools[d.Name] = pin{d.Hash().String(), d.Description}
	}
	all.Servers[s.identity()] = tools
	doc, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.Path), 0o700); err != nil {
		return err
	}
	return keyfile.Replace(p.Path, append(doc, '\n'))
}

// ErrNotAccepted is why a tool of a server is refused that is not as it was when the user
// accepted the server.
var ErrNotAccepted = errors.New("the tool was not accepted")

// notAccepted is an ErrNotAccepted that says what is different.
type notAccepted string

// Error says what is different.
func (e notAccepted) Error() string { return string(e) }

// Is implements the interface that [errors.Is] uses.
func (e notAccepted) Is(target error) bool { return target == ErrNotAccepted }

// check says why a tool is not as it was accepted.
func (p pinned) check(d agentfile.Definition) error {
	switch was, ok := p[d.Name]; {
	case p == nil:
		return nil
	case !ok:
		return notAccepted("it is new since the server was accepted")
	case was.Hash != d.Hash().String():
		return notAccepted("the server describes it differently than when it was accepted")
	}
	return nil
}
