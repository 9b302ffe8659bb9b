package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/mcptool"
)

// Pins is the file with the pins of a user's servers: the definition of each tool when it was
// accepted. A server is accepted at first sight. From then on a tool with a changed definition
// is refused until the user accepts it. Processes may share the file.
type Pins struct{ Path string }

// DefaultPins returns the file of the current user, servers.json in the configuration
// folder of the program.
func DefaultPins() (Pins, error) {
	base, err := os.UserConfigDir()
	return Pins{filepath.Join(base, "starling-host", "servers.json")}, err
}

// pinned are the accepted tools of one server, by name.
type pinned map[string]pin

type pin struct {
	Hash       string          `json:"hash"`                 // see mcptool.Definition.Hash
	Definition json.RawMessage `json:"definition,omitempty"` // an mcptool.Definition
}

// pinsFile is the document in the file.
type pinsFile struct {
	Servers map[string]pinned `json:"servers"`        // by identity
	Seen    map[string]seen   `json:"seen,omitempty"` // by the name of the server
}

// seen is the state of a server at the last connection.
type seen struct {
	Identity string `json:"identity"`
	Tools    pinned `json:"tools,omitempty"` // nil if equal to the accepted one
}

// identity identifies a server: the hash of its command or address, which may contain keys. It
// does not depend on the path of a launcher or the current folder.
func (s Server) identity() string {
	words := []string{s.URL}
	if s.URL == "" {
		full, err := s.Absolute()
		if err != nil {
			full = s
		}
		words = slices.Clone(full.Command)
		if base := strings.TrimSuffix(path.Base(filepath.ToSlash(words[0])), ".exe"); launchers().MatchString(base) {
			words[0] = base
		}
	}
	doc, _ := json.Marshal(words) // strings cannot fail
	return canon.Sum(doc).String()
}

func (p Pins) read() (pinsFile, error) {
	all := pinsFile{Servers: map[string]pinned{}, Seen: map[string]seen{}}
	doc, err := keyfile.ReadFile(p.Path, keyfile.MaxBytes)
	if err == nil {
		err = json.Unmarshal(doc, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return all, fmt.Errorf("the file of accepted servers %s cannot be read: %w", p.Path, err)
	}
	return all, nil
}

// note stores the current definitions of a server. They are pinned if the server is new or
// accept is set; otherwise the user can accept them by the server's name. A lock keeps other
// processes from writing between reading and writing.
func (p Pins) note(name, id string, now pinned, accept bool) error {
	if err := os.MkdirAll(filepath.Dir(p.Path), 0o700); err != nil {
		return err
	}
	unlock, err := keyfile.Lock(p.Path + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	all, err := p.read()
	if err != nil {
		return err
	}
	was := all.Servers[id]
	if was == nil || accept {
		was = now
	}
	all.Servers[id], all.Seen[name] = was, seen{id, now}
	if maps.EqualFunc(was, now, func(a, b pin) bool { return a.Hash == b.Hash }) {
		all.Seen[name] = seen{Identity: id}
	}
	doc, _ := json.MarshalIndent(all, "", "  ") // its definitions are JSON
	if old, err := keyfile.ReadFile(p.Path, keyfile.MaxBytes); err == nil && bytes.Equal(bytes.TrimSpace(old), doc) {
		return nil
	}
	return keyfile.Replace(p.Path, append(doc, '\n'), 0o600)
}

// pinsOf returns the pins of definitions.
func pinsOf(said []mcptool.Definition) pinned {
	now := pinned{}
	for _, d := range said {
		if doc, err := d.Canonical(); err == nil { // tools without one were refused
			now[d.Name] = pin{Hash: d.Hash().String(), Definition: doc}
		}
	}
	return now
}

// notAccepted is the error for a tool that has changed since the user accepted its server.
type notAccepted string

// Error describes the difference.
func (e notAccepted) Error() string { return string(e) }

// check returns how a tool differs from the accepted one, or why it cannot be pinned.
func (p pinned) check(d mcptool.Definition) error {
	if _, err := d.Canonical(); err != nil {
		return fmt.Errorf("its description cannot be pinned: %w", err)
	}
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

// Change is a tool of a server that has changed since the server was accepted.
type Change struct {
	Tool  string
	What  string // "is new", "is gone" or "is described differently"
	Parts []Part // the changed parts of its definition
}

// Part is one value in a server's definition of a tool.
type Part struct {
	Pointer     string // its JSON pointer, such as /schema/properties/path/description
	Before, Now string // JSON; empty if the value was, or is, absent
}

// Changes returns the changes of a server since it was accepted, and a function that accepts
// them. Text is the name of a known server, to use its state at the last connection, or a
// server as for [ParseServer], to connect to it. For an unknown server all tools are new.
func (p Pins) Changes(ctx context.Context, text string) (name string, changes []Change, accept func() error, err error) {
	all, err := p.read()
	if err != nil {
		return "", nil, nil, err
	}
	if last, ok := all.Seen[text]; ok {
		before := all.Servers[last.Identity]
		now := last.Tools
		if now == nil {
			now = before
		}
		return text, changesOf(before, now), func() error { return p.note(text, last.Identity, now, true) }, nil
	}
	s, err := ParseServer(text)
	if err != nil {
		return "", nil, nil, err
	}
	db := starling.Over(nil, starling.Options{})
	defer db.Close()
	connected, err := db.Connect(ctx, starling.ServerOptions{MCP: s.config(p)})
	if err != nil {
		return s.Name, nil, nil, err
	}
	now := pinsOf(saidBy(connected))
	return s.Name, changesOf(all.Servers[s.identity()], now), func() error { return p.note(s.Name, s.identity(), now, true) }, nil
}

// Login connects to a server, which text names as for [ParseServer], and stores the OAuth token
// that the user obtains in the folder of the pins. It fails if the server does not ask for a
// login.
func (p Pins) Login(ctx context.Context, text string, login mcptool.Login) (name string, err error) {
	s, err := ParseServer(text)
	if err != nil {
		return "", err
	}
	if s.URL == "" {
		return "", errors.New("this is a command; only a URL has a login")
	}
	asked, show := false, login.Show
	login.Show = func(address string) { asked = true; show(address) }
	m := s.config(p)
	m.Login = &login
	db := starling.Over(nil, starling.Options{})
	defer db.Close()
	_, err = db.Connect(ctx, starling.ServerOptions{MCP: m})
	if err == nil && !asked {
		err = fmt.Errorf("the server %s does not ask for a login", s.Name)
	}
	return s.Name, err
}

// changesOf returns the changed tools, sorted by name.
func changesOf(before, now pinned) (changes []Change) {
	for _, name := range namesOf(before, now) {
		was, had := before[name]
		is, has := now[name]
		change := Change{Tool: name, What: "is described differently"}
		switch {
		case had && has && was.Hash == is.Hash:
			continue
		case !has:
			change.What = "is gone"
		case !had:
			change.What = "is new"
		}
		old, new := was.values(), is.values()
		for _, pointer := range namesOf(old, new) {
			if has && old[pointer] != new[pointer] {
				change.Parts = append(change.Parts, Part{pointer, old[pointer], new[pointer]})
			}
		}
		changes = append(changes, change)
	}
	return changes
}

// namesOf returns the names in either of two maps, in order.
func namesOf[V any](a, b map[string]V) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	return slices.Compact(names)
}

// values returns each value of a definition that has no members, by its pointer. A definition that is
// nested too deeply for its size is one value: each level is parsed anew.
func (p pin) values() map[string]string {
	budget := work.For(context.Background(), len(p.Definition))
	into := map[string]string{}
	var add func(pointer string, doc json.RawMessage)
	add = func(pointer string, doc json.RawMessage) {
		if budget.Spend(len(doc)+1) != nil || budget.Hold(len(pointer)+len(doc)) != nil {
			return
		}
		var members map[string]json.RawMessage
		var elements []json.RawMessage
		_ = json.Unmarshal(doc, &members)
		_ = json.Unmarshal(doc, &elements)
		for i, e := range elements {
			add(pointer+"/"+strconv.Itoa(i), e)
		}
		for name, m := range members {
			add(pointer+"/"+strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1"), m)
		}
		if len(members)+len(elements) == 0 {
			into[pointer] = cmp.Or(string(doc), "null")
		}
	}
	if add("", p.Definition); budget.Spend(0) != nil || budget.Hold(0) != nil {
		return map[string]string{"": string(p.Definition)}
	}
	return into
}
