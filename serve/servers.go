package serve

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

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

// Absolute returns the server as it works from every folder: with the path of its program, and
// those of the files and folders that its arguments and variables name.
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
	full := Server{Name: s.Name, Command: []string{program}, Env: map[string]string{}}
	for _, word := range s.Command[1:] {
		full.Command = append(full.Command, absoluteWord(word))
	}
	for name, value := range s.Env {
		full.Env[name] = absoluteWord(value)
	}
	return full, nil
}

// absoluteWord returns a word, or the value of a flag, with the path of what it names, if
// it looks like a path and something is there.
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

// config is how to connect to the server.
func (s Server) config() agentfile.MCP {
	return agentfile.MCP{Command: s.Command, URL: s.URL, Env: s.Env, Prefix: s.Name + "_"}
}
