package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// listServers is the tool that returns the states of the servers.
const listServers = "list_servers"

// saidInstructions is the name under which a server's instructions are pinned. No tool can have
// it.
const saidInstructions = "(instructions)"

// The pauses between two attempts to connect to a server.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// peer is a server of Tools. It is connected in the background, so that a slow or
// broken server delays neither the others nor the client.
type peer struct {
	Server
	pins  Pins
	first chan struct{} // closed when the first attempt has ended

	listTime time.Duration // see the constant
	listing  sync.Mutex    // serializes the presentation of lists; taken before the mu of the Tools

	// The mu of the Tools guards the fields below.
	connected    *starling.Server // nil if not connected
	module       *module
	why          string                       // the reason for no connection
	leftOut      map[string]string            // tools, by name, and why
	instructions string                       // the accepted ones
	offers       map[string]bool              // "resources" and "prompts"
	lists        map[string][]json.RawMessage // of resources and templates, by method, as last listed
}

// ServerState is the state of a server of [Tools].
type ServerState struct {
	Name         string            `json:"name"`
	State        string            `json:"state"` // "connecting", "ready" or "down"
	Why          string            `json:"why,omitempty"`
	Tools        []string          `json:"tools"`
	LeftOut      map[string]string `json:"left_out,omitempty"` // tools, and why
	Instructions string            `json:"instructions,omitempty"`
	LastWords    string            `json:"last_words,omitempty"` // its output on standard error
}

// AddServer adds a server and connects it in the background, with retries after growing pauses.
// Its tools are served from then on, except tools that have changed since the user accepted the
// server. A new server is accepted. Call AddServer before the tools are served.
func (l *Tools) AddServer(s Server, pins Pins) error {
	if slices.ContainsFunc(l.servers, func(other *peer) bool { return other.Name == s.Name }) {
		return fmt.Errorf("there are two servers %q: give one of them another name, as in %s-2=COMMAND", s.Name, s.Name)
	}
	if _, err := pins.read(); err != nil {
		return err
	}
	server := &peer{Server: s, pins: pins, first: make(chan struct{}), listTime: listTime}
	l.servers = append(l.servers, server)
	l.work.Go(func() {
		for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
			why := l.connect(server)
			if l.life.Err() != nil {
				return
			}
			l.mu.Lock()
			again := server.why != why
			server.why = why
			l.mu.Unlock()
			if why != "" && again {
				l.tell("the server " + s.Name + " is down: " + why)
			}
			if pause == firstRetry {
				close(server.first)
			}
			if why == "" {
				return
			}
			select {
			case <-time.After(pause):
			case <-l.life.Done():
				return
			}
		}
	})
	return nil
}

// connect connects to a server and presents its tools, or returns why it cannot.
func (l *Tools) connect(s *peer) string {
	o := starling.ServerOptions{MCP: s.config(s.pins), Policy: l.options.Policy}
	o.Timeout = time.Duration(cmp.Or(l.options.Limits.TimeoutMs, sandbox.DefaultLimits().TimeoutMs)) * time.Millisecond
	o.Changed = func() { _ = l.listed(s) } // keeps the old description if the new one cannot be pinned
	ctx := l.life
	if l.options.Limits.TimeoutMs > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	connected, err := l.db.Connect(ctx, o)
	if err != nil {
		return starling.PlainError(err)
	}
	l.mu.Lock()
	s.connected = connected
	l.mu.Unlock()
	if err := l.listed(s); err != nil {
		l.mu.Lock()
		s.connected = nil
		l.mu.Unlock()
		connected.Close()
		return starling.PlainError(err)
	}
	return ""
}

// listed presents the tools that a server lists now.
func (l *Tools) listed(s *peer) error {
	s.listing.Lock()
	defer s.listing.Unlock()
	l.mu.RLock()
	connected, old := s.connected, s.module
	l.mu.RUnlock()
	if connected == nil {
		return nil
	}
	known, err := s.pins.pinnedTools(s.Server)
	if err != nil {
		return err
	}
	added, leftOut := &module{ref: "the server " + s.Name}, map[string]string{}
	for _, r := range connected.Refused() {
		leftOut[r.Tool] = starling.PlainError(r.Why)
	}
	said := saidBy(connected)
	instructions := connected.Instructions()
	var changed []string
	accepts := func(d mcptool.Definition) bool {
		err := known.check(d)
		if err != nil {
			leftOut[d.Name] = err.Error()
		}
		if _, ok := errors.AsType[notAccepted](err); ok {
			changed = append(changed, d.Name)
		}
		return err == nil
	}
	for _, t := range connected.Tools() {
		d, _ := t.Definition()
		if err := mcpsrv.CheckName(t.Name()); err != nil {
			leftOut[d.Name] = err.Error()
		} else if accepts(d) {
			added.tools = append(added.tools, t)
		}
	}
	if instructions != "" && !accepts(instructionsOf(instructions)) {
		instructions = ""
	}
	if err := s.pins.note(s.Name, s.identity(), pinsOf(said), false); err != nil && known == nil {
		return err // without the note, the user can still accept the change by the server's command
	}
	if err := l.place(added, old); err != nil {
		return err
	}
	offers := map[string]bool{"resources": connected.Offers("resources"), "prompts": connected.Offers("prompts")}
	l.mu.Lock()
	s.module, s.instructions = added, instructions
	s.offers, s.lists = offers, map[string][]json.RawMessage{}
	s.leftOut, leftOut = leftOut, s.leftOut
	now := s.leftOut
	l.mu.Unlock()
	if len(changed) > 0 && slices.ContainsFunc(changed, func(name string) bool { return leftOut[name] != now[name] }) {
		l.tell(fmt.Sprintf("tools of the server %s are left out because they changed since it was accepted: %s; review and accept them with: starling-host mcp trust %s",
			s.Name, strings.Join(changed, ", "), s.Name))
	}
	for name, why := range now {
		if !slices.Contains(changed, name) && leftOut[name] != why {
			l.tell(fmt.Sprintf("the tool %s of the server %s is left out: %s", name, s.Name, why))
		}
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return nil
}

// saidBy returns a server's definitions of its tools, and its instructions.
func saidBy(s *starling.Server) (all []mcptool.Definition) {
	for _, t := range s.Tools() {
		d, _ := t.Definition()
		all = append(all, d)
	}
	if text := s.Instructions(); text != "" {
		all = append(all, instructionsOf(text))
	}
	return all
}

// instructionsOf returns instructions in pinned form, as the description of a tool: a model
// reads both.
func instructionsOf(text string) mcptool.Definition {
	return mcptool.Definition{Name: saidInstructions, Description: text, Schema: []byte("null")}
}

// tell warns on standard error, and tells the user of the client.
func (l *Tools) tell(text string) {
	l.warn(text)
	select {
	case l.notices <- text:
	default:
	}
}

// states returns the states of the servers.
func (l *Tools) states() []ServerState {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all := []ServerState{}
	for _, s := range l.servers {
		state := ServerState{Name: s.Name, State: "connecting", Why: s.why, Tools: []string{}, LeftOut: s.leftOut, Instructions: s.instructions}
		if s.connected != nil {
			state.State, state.LastWords = "ready", s.connected.LastWords()
		} else if s.why != "" {
			state.State = "down"
		}
		if s.module != nil {
			for _, t := range s.module.tools {
				state.Tools = append(state.Tools, t.Name())
			}
		}
		all = append(all, state)
	}
	return all
}

// aboutServers describes [listServers], with the servers' instructions: those of a server that
// connects late reach the model in no other way.
func (l *Tools) aboutServers() string {
	about := "The state of the MCP servers behind this one: whether each is connected, why not, and the tools left out."
	for _, s := range l.states() {
		if s.State == "down" {
			about += " The server " + s.Name + " is down."
		}
	}
	return about + " " + l.Instructions()
}

// Instructions implements [mcpsrv.Changing].
func (l *Tools) Instructions() string {
	var all []string
	for _, s := range l.states() {
		if s.Instructions != "" {
			all = append(all, fmt.Sprintf("The server %s, whose tools begin with %s_, says: %s", s.Name, s.Name, s.Instructions))
		}
	}
	return strings.Join(all, "\n")
}

// Settle implements [mcpsrv.Changing].
func (l *Tools) Settle(ctx context.Context, tool string) error {
	for _, s := range l.servers {
		if tool != "" && (!strings.HasPrefix(tool, s.Name+"_") || l.has(tool)) {
			continue
		}
		select {
		case <-s.first:
		case <-ctx.Done():
		}
	}
	if tool == "" || l.has(tool) {
		return nil
	}
	for _, s := range l.states() {
		remote, ok := strings.CutPrefix(tool, s.Name+"_")
		switch {
		case !ok:
		case s.State != "ready":
			return fmt.Errorf("the server %s is %s: %s", s.Name, s.State, cmp.Or(s.Why, "it has not answered yet"))
		case s.LeftOut[remote] != "":
			return fmt.Errorf("the tool %s of the server %s is left out: %s", remote, s.Name, s.LeftOut[remote])
		}
	}
	return nil
}

// has reports whether a tool of this name is served.
func (l *Tools) has(name string) bool {
	return l.code != nil || slices.ContainsFunc(l.current(), func(m *module) bool { return m.tool(name) != nil })
}
