package gateway

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/agentfile"
)

// Server configures a server of the Model Context Protocol for [Tools].
type Server struct {
	// Name is the prefix of the names of its tools, followed by an underscore.
	Name string

	// MCP has the server's command or address, the tools to serve, nil for all, and how they are used.
	// Names in Rename also get the prefix.
	agentfile.MCP

	// Shared has all sessions of clients use one connection, one call after the other. The server is
	// greeted by this program, and cannot ask anybody. Otherwise each session has its own.
	Shared bool

	// MaxInput bounds the arguments of a call, in bytes. Zero is 4 MiB.
	MaxInput uint64
}

var (
	namedServer = lazy.Regexp(`^([a-z][a-z0-9-]{0,31})=`)
	assignment  = lazy.Regexp(`^([A-Z_][A-Z0-9_]*)=(.*)$`)
	launchers   = lazy.Regexp(`^(npx|npm|bunx?|pnpm|yarn|deno|node|uvx?|pipx|python[0-9.]*|docker|podman|go|env|sh|bash)$`)
	subcommands = lazy.Regexp(`^(exec|run|dlx|x|tool|start)$`)
	outOfName   = lazy.Regexp(`[^a-z0-9]+`)
)

// ParseServer reads a command line, which it splits into words without a shell, or an http
// or https URL. NAME= before it names the server, in lower case; otherwise the name comes
// from its package, program or host. Assignments in upper case before a command are
// variables for it.
func ParseServer(text string) (Server, error) {
	var s Server
	rest := strings.TrimSpace(text)
	if m := namedServer().FindStringSubmatch(rest); m != nil {
		s.Name, rest = m[1], rest[len(m[0]):]
	}
	if strings.HasPrefix(rest, "http://") || strings.HasPrefix(rest, "https://") {
		u, err := url.Parse(rest)
		if err != nil || u.Host == "" {
			return s, errors.New("not a URL")
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
	for len(words) > 0 && assignment().MatchString(words[0]) {
		m := assignment().FindStringSubmatch(words[0])
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		s.Env[m[1]], words = m[2], words[1:]
	}
	if len(words) == 0 {
		return s, errors.New("the command is missing")
	}
	if s.Command = words; s.Name == "" {
		named := words[0]
		if base := strings.TrimSuffix(path.Base(filepath.ToSlash(named)), ".exe"); launchers().MatchString(base) {
			for _, word := range words[1:] {
				if !strings.HasPrefix(word, "-") && !subcommands().MatchString(word) {
					named = word
					break
				}
			}
		}
		s.Name = nameOf(named)
	}
	return s, nil
}

// nameOf derives the name of a server from its package, program or host, without its version
// and common words: server-files@1.2 is files.
func nameOf(of string) string {
	base := path.Base(filepath.ToSlash(of))
	base, _, _ = strings.Cut(base, "@")
	switch ext := path.Ext(base); ext {
	case ".js", ".mjs", ".cjs", ".ts", ".py", ".exe", ".sh":
		base = strings.TrimSuffix(base, ext)
	}
	words := strings.Split(strings.Trim(outOfName().ReplaceAllString(strings.ToLower(base), "-"), "-"), "-")
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
		return nil, fmt.Errorf("the command line has an unclosed quote: %s", line)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// Absolute returns the server in a form that works from every folder: with absolute paths of
// its program, and of the files and folders in its arguments and variables.
func (s Server) Absolute() (Server, error) {
	if s.URL != "" {
		return s, nil
	}
	program, err := exec.LookPath(s.Command[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return s, err
	}
	full := s
	full.Command, full.Env = append([]string{program}, lists.Map(s.Command[1:], absoluteWord)...), map[string]string{}
	for name, value := range s.Env {
		full.Env[name] = absoluteWord(value)
	}
	return full, nil
}

// AbsoluteServer returns the description of a server in a form that works from every folder.
func AbsoluteServer(text string) (string, error) {
	s, err := ParseServer(text)
	if err == nil {
		s, err = s.Absolute()
	}
	if err != nil {
		return "", err
	}
	if s.URL != "" {
		return text, nil
	}
	words := []string{}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		words = append(words, name+"="+display.ShellWord(s.Env[name]))
	}
	return s.Name + "=" + strings.Join(append(words, lists.Map(s.Command, display.ShellWord)...), " "), nil
}

// absoluteWord makes a word, or the value of a flag, absolute if it looks like a path and
// exists.
func absoluteWord(word string) string {
	flag, value, isFlag := "", word, strings.HasPrefix(word, "-")
	if isFlag {
		if flag, value, isFlag = strings.Cut(word, "="); !isFlag {
			return word
		}
		flag += "="
	}
	info, err := os.Stat(value)
	if err != nil || value != "." && value != ".." && !strings.ContainsAny(value, `/\`) && (info.IsDir() || filepath.Ext(value) == "") {
		return word
	}
	if full, err := filepath.Abs(value); err == nil {
		return flag + full
	}
	return word
}

// config returns the configuration of the connection, with the token file in the folder of
// the pins.
func (s Server) config(p Pins) agentfile.MCP {
	m := s.MCP
	m.Prefix, m.Rename = s.Name+"_", map[string]string{}
	for tool, name := range s.Rename {
		m.Rename[tool] = m.Prefix + name
	}
	if u, err := url.Parse(s.URL); err == nil && s.URL != "" {
		m.Tokens = filepath.Join(filepath.Dir(p.Path), "tokens", u.Hostname()+"-"+s.identity()[:16]+".json")
	}
	return m
}

// AddHeader reads "NAME: HEADER: VALUE" and adds the header to the named server.
func AddHeader(servers []Server, text string) error {
	s, rest, err := named(servers, text)
	header, value, ok := strings.Cut(rest, ":")
	if !ok {
		err = errors.New("write it as in: NAME: Authorization: Bearer $TOKEN")
	}
	if err != nil {
		return err
	}
	if s.URL == "" {
		return fmt.Errorf("%s is a command, which cannot have headers: set a variable before it", s.Name)
	}
	if s.Headers == nil {
		s.Headers = map[string]string{}
	}
	s.Headers[strings.TrimSpace(header)] = strings.TrimSpace(value)
	return nil
}

// ChooseTools reads "NAME: TOOL, !TOOL, TOOL=OTHER" for the named server: tools to serve, tools
// to leave out, and other names.
func ChooseTools(servers []Server, text string) error {
	s, rest, err := named(servers, text)
	if err != nil {
		return err
	}
	for word := range strings.SplitSeq(rest, ",") {
		word = strings.TrimSpace(word)
		tool, other, renamed := strings.Cut(word, "=")
		without, not := strings.CutPrefix(word, "!")
		switch {
		case tool == "" || not && without == "" || renamed && other == "":
			return errors.New("write it as in: NAME: search, !delete, list_files=ls")
		case not:
			s.Exclude = append(s.Exclude, without)
			continue
		case renamed:
			if s.Rename == nil {
				s.Rename = map[string]string{}
			}
			s.Rename[tool] = other
		}
		s.Include = append(s.Include, tool)
	}
	return nil
}

// Set reads "NAME: shared, strict, timeout=DURATION, arguments=BYTES" for the named server.
func Set(servers []Server, text string) error {
	s, rest, err := named(servers, text)
	if err != nil {
		return err
	}
	for word := range strings.SplitSeq(rest, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(word), "=")
		var err error
		switch {
		case key == "shared" && value == "":
			s.Shared = true
		case key == "strict" && value == "":
			s.Check = "strict"
		case key == "timeout":
			if s.Timeout, err = config.ParseDuration(value); err == nil && s.Timeout <= 0 {
				err = errors.New("it is not positive")
			}
		case key == "arguments":
			s.MaxInput, err = display.ParseCount(value, display.SizeUnits())
		default:
			err = errors.New("write it as in: NAME: shared, strict, timeout=60s, arguments=8MiB")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(word), err)
		}
	}
	return nil
}

// named returns the server whose name a text begins with, and what follows the colon.
func named(servers []Server, text string) (s *Server, rest string, err error) {
	name, rest, _ := strings.Cut(text, ":")
	name = strings.TrimSpace(name)
	i := slices.IndexFunc(servers, func(s Server) bool { return s.Name == name })
	if i < 0 {
		return nil, rest, fmt.Errorf("no server %q", name)
	}
	return &servers[i], rest, nil
}
