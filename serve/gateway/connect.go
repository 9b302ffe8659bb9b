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
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/lists"
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

// known is a server of Tools.
type known struct {
	Server
	pins Pins
}

// session are the tools of one session of a client. It has its own connections to the servers, but to
// those that are shared: so nothing of one session reaches another one.
type session struct {
	*Tools
	client  mcpsrv.Client   // set by Greet
	life    context.Context // for connecting to servers; Close cancels it
	end     context.CancelFunc
	work    sync.WaitGroup
	changed chan struct{}   // capacity 1: the tools have changed
	notices chan string     // for the user of the client
	servers []*peer         // in the order in which they were added
	level   json.RawMessage // of logs, as the client set it last; guarded by the mu of the Tools, and so is the next
	given   map[string]int  // answers of the recording, by the tool and the arguments
}

// peer is a server in a session. It is connected in the background, so that a slow or broken server
// delays neither the others nor the client.
type peer struct {
	known
	first chan struct{} // closed when the first attempt has ended

	listTime time.Duration // see the constant
	listing  sync.Mutex    // serializes the presentation of lists; taken before the mu of the Tools

	// The mu of the Tools guards the fields below.
	connected    *starling.Server // nil if not connected
	module       *module
	why          string                       // the reason for no connection
	leftOut      map[string]string            // tools, by name, and why
	stamp        uint64                       // of the file of pins, when the tools were last presented
	instructions string                       // the accepted ones
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

// AddServer adds a server. Each session connects to it in the background, with retries after growing
// pauses. Its tools are served from then on, except tools that have changed since the user accepted the
// server. A new server is accepted. Call AddServer before the tools are served.
func (l *Tools) AddServer(s Server, pins Pins) error {
	if slices.ContainsFunc(l.known, func(other known) bool { return other.Name == s.Name }) {
		return fmt.Errorf("there are two servers %q: give one of them another name, as in %s-2=COMMAND", s.Name, s.Name)
	}
	if _, err := pins.read(); err != nil {
		return err
	}
	l.known = append(l.known, known{s, pins})
	return nil
}

// Open returns the tools of one session of a client, with connections of its own to the servers that are not
// shared.
func (l *Tools) Open() mcpsrv.Mirror {
	common := l.shared()
	s := l.session(func(k known) *peer {
		if !k.Shared {
			return k.peer()
		}
		return common.servers[slices.IndexFunc(common.servers, func(p *peer) bool { return p.Name == k.Name })]
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions = append(l.sessions, s)
	return s
}

// shared returns the session that has the shared connections.
func (l *Tools) shared() *session {
	l.once.Do(func() {
		l.common = l.session(func(k known) *peer {
			if k.Shared {
				return k.peer()
			}
			return nil
		})
		l.common.Greet(mcpsrv.Client{Many: true})
	})
	return l.common
}

// session makes a session with a peer for each server, or none where of returns nil.
func (l *Tools) session(of func(known) *peer) *session {
	s := &session{Tools: l, given: map[string]int{}, changed: make(chan struct{}, 1), notices: make(chan string, 64)}
	s.life, s.end = context.WithCancel(context.Background())
	for _, k := range l.known {
		if p := of(k); p != nil {
			s.servers = append(s.servers, p)
		}
	}
	return s
}

// peer makes a peer that is not connected.
func (k known) peer() *peer { return &peer{known: k, first: make(chan struct{}), listTime: listTime} }

// Greet implements [mcpsrv.Mirror].
func (l *session) Greet(c mcpsrv.Client) {
	l.client = c
	for _, s := range l.servers {
		if s.Shared && l != l.common {
			continue
		}
		l.work.Go(func() {
			for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
				why, cut := l.connect(s)
				if l.life.Err() != nil {
					return
				}
				l.mu.Lock()
				again := s.why != why
				s.why = why
				l.mu.Unlock()
				if why != "" && again {
					l.tell("the server " + s.Name + " is down: " + why)
				}
				if pause == firstRetry {
					close(s.first)
				}
				if why == "" || cut { // to start anew what is slow would take as long again
					return
				}
				if await.Pause(l.life, pause); l.life.Err() != nil {
					return
				}
			}
		})
	}
}

// Close implements [mcpsrv.Mirror].
func (l *session) Close() {
	l.end()
	l.work.Wait()
	l.mu.Lock()
	l.sessions = slices.DeleteFunc(l.sessions, func(other *session) bool { return other == l })
	var own []*starling.Server
	for _, s := range l.servers {
		if s.connected != nil && (!s.Shared || l == l.common) {
			own = append(own, s.connected)
			s.connected = nil
		}
	}
	l.mu.Unlock()
	for _, connected := range own {
		connected.Close()
	}
}

// patience is how long a server may take to start.
func (l *Tools) patience(s Server) time.Duration {
	limit := time.Duration(cmp.Or(l.options.Limits.TimeoutMs, sandbox.DefaultLimits().TimeoutMs)) * time.Millisecond
	return cmp.Or(s.Timeout, limit)
}

// Patience implements [mcpsrv.Mirror].
func (l *session) Patience() (most time.Duration) {
	for _, s := range l.servers {
		if s.Timeout > 0 || l.options.Limits.TimeoutMs > 0 {
			most = max(most, l.patience(s.Server))
		}
	}
	return most
}

// connect connects to a server and presents its tools, or returns why it cannot.
func (l *session) connect(s *peer) (why string, cut bool) {
	o := starling.ServerOptions{MCP: s.config(s.pins), Policy: l.options.Policy, MaxInput: s.MaxInput}
	o.Timeout = l.patience(s.Server)
	o.Changed = func() { _ = l.listed(s) } // keeps the old description if the new one cannot be pinned
	o.Assistant, o.OneAtATime = &l.client.Assistant, l.client.Many
	ctx, cancel := l.life, func() {}
	if s.Timeout > 0 || l.options.Limits.TimeoutMs > 0 {
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
	}
	defer cancel()
	connected, err := l.db.Connect(ctx, o)
	if err != nil {
		return starling.PlainError(err), errors.Is(err, context.DeadlineExceeded)
	}
	l.mu.Lock()
	s.connected = connected
	level := l.level
	l.mu.Unlock()
	if err := l.listed(s); err != nil {
		l.mu.Lock()
		s.connected = nil
		l.mu.Unlock()
		connected.Close()
		return starling.PlainError(err), false
	}
	if level != nil && connected.Offers("logging") {
		_, _ = connected.Request(ctx, "logging/setLevel", level)
	}
	return "", false
}

// listed presents the tools that a server lists now.
func (l *session) listed(s *peer) error {
	s.listing.Lock()
	defer s.listing.Unlock()
	l.mu.RLock()
	connected := s.connected
	l.mu.RUnlock()
	if connected == nil {
		return nil
	}
	stamp := guest.Stamp(s.pins.Path)
	all, err := s.pins.read()
	if err != nil {
		return err
	}
	known := all.Servers[s.identity()] // nil for a new server
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
	for _, t := range added.tools {
		for _, m := range l.Tools.current() {
			if m.tool(t.Name()) != nil {
				return fmt.Errorf("its tool %q is also a tool of %s", t.Name(), m.ref)
			}
		}
	}
	slices.SortStableFunc(added.tools, func(a, b *starling.Tool) int { // as the server lists them
		one, _ := a.Definition()
		other, _ := b.Definition()
		return cmp.Compare(one.At, other.At)
	})
	l.mu.Lock()
	s.module, s.instructions, s.stamp = added, instructions, stamp
	s.lists = map[string][]json.RawMessage{}
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
	for _, to := range l.audience() {
		await.Offer(to.changed, struct{}{})
	}
	return nil
}

// review presents the tools of servers again of which some are left out, if the user may have accepted them since.
func (l *session) review() {
	for _, s := range l.servers {
		l.mu.RLock()
		again := len(s.leftOut) > 0 && s.stamp != guest.Stamp(s.pins.Path)
		l.mu.RUnlock()
		if again && s.Shared {
			_ = l.shared().listed(s)
		} else if again {
			_ = l.listed(s) // keeps the old list if the file cannot be read
		}
	}
}

// audience returns the sessions that have the connections of this one.
func (l *session) audience() []*session {
	if l != l.common {
		return []*session{l}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Clone(l.sessions)
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
func (l *session) tell(text string) {
	l.warn(text)
	for _, to := range l.audience() {
		await.Offer(to.notices, text)
	}
}

// states returns the states of the servers.
func (l *session) states() []ServerState {
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
			state.Tools = lists.Map(s.module.tools, (*starling.Tool).Name)
		}
		all = append(all, state)
	}
	return all
}

// aboutServers describes [listServers], with the servers' instructions: those of a server that
// connects late reach the model in no other way.
func (l *session) aboutServers() string {
	about := "The state of the MCP servers behind this one: whether each is connected, why not, and the tools left out."
	for _, s := range l.states() {
		if s.State == "down" {
			about += " The server " + s.Name + " is down."
		}
	}
	return about + " " + l.Instructions()
}

// Instructions implements [mcpsrv.Mirror].
func (l *session) Instructions() string {
	var all []string
	for _, s := range l.states() {
		if s.Instructions != "" {
			all = append(all, fmt.Sprintf("The server %s, whose tools begin with %s_, says: %s", s.Name, s.Name, s.Instructions))
		}
	}
	return strings.Join(all, "\n")
}

// Settle implements [mcpsrv.Mirror]. A recorded tool waits for no server.
func (l *session) Settle(ctx context.Context, tool string) error {
	if _, recorded := l.recording.refs[tool]; recorded {
		return nil
	}
	return l.settle(ctx, tool)
}

func (l *session) settle(ctx context.Context, tool string) error {
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
func (l *session) has(name string) bool {
	return l.code != nil || slices.ContainsFunc(l.current(), func(m *module) bool { return m.tool(name) != nil })
}
