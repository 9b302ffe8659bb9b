package seal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/starling-host/starling/internal/lists"
)

// Policy names the keys that a verifier trusts: keys of logs, and keys of witnesses that
// must have signed. The zero value trusts no key, and checks no signature.
type Policy struct {
	logs      []verifier
	witnesses []verifier
	groups    map[string]group
	quorum    string // empty for no quorum
}

// group is a witness or a number of members that must have signed.
type group struct {
	witness int // index; -1 for a group
	need    int
	members []string
}

// Trust returns the policy that requires the signature of one of these keys of logs.
func Trust(vkeys ...string) (*Policy, error) {
	keys, err := parseVKeys(vkeys)
	if err != nil {
		return nil, err
	}
	return &Policy{logs: keys}, nil
}

// ParsePolicy reads a policy (spec/seal.md, section 7). An error names the line.
func ParsePolicy(text string) (*Policy, error) {
	p := &Policy{groups: map[string]group{}}
	ended := false
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == '\r' })
		if len(fields) == 0 {
			continue
		}
		if err := p.line(fields, &ended); err != nil {
			return nil, fmt.Errorf("line %d: %s", i+1, plain(err))
		}
	}
	switch {
	case len(p.logs) == 0:
		return nil, errors.New("the policy names no log: add a line \"log VKEY\"")
	case !ended:
		return nil, errors.New("the policy has no quorum: add a line \"quorum NAME\", or \"quorum none\"")
	}
	return p, nil
}

// lineForms are the lines of a policy, by their keyword. Behind a key there may be a URL.
var lineForms = map[string]string{
	"log": "log VKEY", "witness": "witness NAME VKEY", "group": "group NAME any|all|K MEMBER...", "quorum": "quorum NAME",
}

func (p *Policy) line(fields []string, ended *bool) error {
	form, known := lineForms[fields[0]]
	if !known {
		return fmt.Errorf("%q is not a keyword: want log, witness, group or quorum", fields[0])
	}
	words, n := fields, len(strings.Fields(form))
	if strings.HasSuffix(form, "VKEY") && len(words) == n+1 && strings.Contains(words[n], "://") {
		words = words[:n]
	}
	// With an extra word, the author may have intended a narrower trust.
	if len(words) < n || len(words) > n && !strings.HasSuffix(form, "...") {
		return fmt.Errorf("want %q and nothing more", form)
	}
	fresh := func(name string) error {
		if _, taken := p.groups[name]; taken || name == "none" {
			return fmt.Errorf("the name %q is taken", name)
		}
		return nil
	}
	switch fields[0] {
	case "log":
		v, err := parseVKey(fields[1], algLog)
		p.logs = append(p.logs, v)
		return err
	case "witness":
		v, err := parseVKey(fields[2], algWitness)
		if err == nil {
			err = fresh(fields[1])
		}
		if err == nil && slices.ContainsFunc(p.witnesses, func(w verifier) bool { return w.public.Equal(v.public) }) {
			err = fmt.Errorf("the key of %q is that of another witness", fields[1])
		}
		p.groups[fields[1]] = group{witness: len(p.witnesses)}
		p.witnesses = append(p.witnesses, v)
		return err
	case "group":
		g := group{witness: -1, members: fields[3:]}
		for i, m := range g.members {
			if _, ok := p.groups[m]; !ok {
				return fmt.Errorf("the member %q is not defined above", m)
			}
			if slices.Contains(g.members[:i], m) {
				return fmt.Errorf("the member %q is named twice", m)
			}
		}
		switch k, err := strconv.Atoi(fields[2]); {
		case fields[2] == "any":
			g.need = 1
		case fields[2] == "all":
			g.need = len(g.members)
		case err != nil || k < 1 || k > len(g.members):
			return fmt.Errorf("%q is not how many must sign: want any, all, or a number up to %d", fields[2], len(g.members))
		default:
			g.need = k
		}
		err := fresh(fields[1])
		p.groups[fields[1]] = g
		return err
	case "quorum":
		if *ended {
			return errors.New("a second quorum")
		}
		*ended = true
		if fields[1] == "none" {
			return nil
		}
		if _, ok := p.groups[fields[1]]; !ok {
			return fmt.Errorf("the quorum %q is not defined above", fields[1])
		}
		p.quorum = fields[1]
	}
	return nil
}

// TrustsNobody reports whether the policy checks no signature.
func (p *Policy) TrustsNobody() bool { return p == nil || len(p.logs) == 0 }

// Errors of [Policy.Check].
var (
	// ErrUntrusted: no log that the policy names has signed.
	ErrUntrusted = errors.New("seal: no key that you trust has signed the checkpoint")
	// ErrQuorum: witnesses are missing.
	ErrQuorum = errors.New("seal: witnesses that the policy wants have not signed")
)

// Check reads a signed checkpoint, checks the signatures of the keys that the policy
// names, and returns them. Signatures of other keys are ignored.
func (p *Policy) Check(signed []byte) (Checkpoint, []Signature, error) {
	c, err := ParseCheckpoint(signed)
	if err != nil || p.TrustsNobody() {
		return c, nil, err
	}
	known := p.of(c.Origin)
	if len(known) == 0 {
		return c, nil, fmt.Errorf("%w: its origin is %s", ErrUntrusted, c.Origin)
	}
	known = append(known, p.witnesses...)
	var all []Signature
	byLog, by := false, make([]bool, len(p.witnesses))
	text, lines, _ := bytes.Cut(signed, []byte("\n\n"))
	for line := range strings.Lines(string(lines)) {
		name, sig, err := signatureOf(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return c, nil, err
		}
		hash := binary.BigEndian.Uint32(sig)
		i := slices.IndexFunc(known, func(v verifier) bool { return v.name == name && v.KeyHash() == hash })
		switch {
		case i < 0:
		case !known[i].Verify(append(text, '\n'), sig[4:]): // also a key's second signature
			return c, nil, fmt.Errorf("seal: the checkpoint of %s: %w", c.Origin, &note.InvalidSignatureError{Name: name, Hash: hash})
		case known[i].alg == algLog:
			byLog = true
			pinned := slices.ContainsFunc(p.logs, func(v verifier) bool { return v.name == c.Origin && v.public.Equal(known[i].public) })
			all = append(all, Signature{Key: name, VKey: vkey(c.Origin, algLog, known[i].public), AnyLog: !pinned})
		case !by[i-len(known)+len(by)]:
			by[i-len(known)+len(by)] = true
			all = append(all, Signature{Key: name, Witness: true, Time: time.Unix(int64(binary.BigEndian.Uint64(sig[4:])), 0).UTC()})
		}
	}
	switch {
	case !byLog:
		return c, all, fmt.Errorf("%w: its origin is %s", ErrUntrusted, c.Origin)
	case p.quorum != "" && !p.satisfied(p.quorum, by, map[string]bool{}):
		return c, all, fmt.Errorf("%w: %q is not satisfied", ErrQuorum, p.quorum)
	}
	return c, all, nil
}

// Logs returns the keys of logs that the policy names.
func (p *Policy) Logs() []PublicKey {
	if p == nil {
		return nil
	}
	return lists.Map(p.logs, func(v verifier) PublicKey { return PublicKey{v.name, v.public, vkey(v.name, algLog, v.public)} })
}

// of returns the keys that the policy names for the log of an origin, under its name.
func (p *Policy) of(origin string) (known []verifier) {
	for i, v := range p.logs {
		names := func(v verifier) bool { return origin == v.name || isOriginOf(origin, v.name) }
		if names(v) && !slices.ContainsFunc(p.logs[:i], func(w verifier) bool { return names(w) && w.public.Equal(v.public) }) {
			known = append(known, verifier{origin, algLog, v.public})
		}
	}
	return known
}

// satisfied reports whether enough members of a group have signed. A group may be a member of
// several, so known keeps the answers: without it, groups of groups would double the work at each
// level.
func (p *Policy) satisfied(name string, by []bool, known map[string]bool) bool {
	if answer, ok := known[name]; ok {
		return answer
	}
	g, signed := p.groups[name], 0
	for _, m := range g.members {
		if p.satisfied(m, by, known) {
			signed++
		}
	}
	known[name] = signed >= g.need
	if g.witness >= 0 {
		known[name] = by[g.witness]
	}
	return known[name]
}
