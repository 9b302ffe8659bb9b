package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// Offers implements [mcpsrv.Mirror]. A server that is not connected yet may offer
// everything.
func (l *session) Offers(what string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.recording.with(mcptool.SourcePrefix+reads[what])) > 0 || slices.ContainsFunc(l.servers, func(s *peer) bool { return s.module == nil || s.connected != nil && s.connected.Offers(what) })
}

// offering returns a server's connection if it has the resources or prompts of a method.
func (l *session) offering(s *peer, method string) *starling.Server {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if what, _, _ := strings.Cut(method, "/"); s.connected == nil || !s.connected.Offers(what) {
		return nil
	}
	return s.connected
}

// Items implements [mcpsrv.Mirror]. It omits servers that do not answer.
func (l *session) Items(ctx context.Context, method string) []json.RawMessage {
	lists := make([][]json.RawMessage, len(l.servers))
	var asked sync.WaitGroup
	for i, s := range l.servers {
		asked.Go(func() { lists[i] = l.itemsOf(ctx, s, method) })
	}
	asked.Wait()
	return slices.Concat(lists...)
}

// listTime bounds the time of a server for one of its lists, because the lists of the
// others wait for it.
const listTime = 5 * time.Second

// itemsOf reads a list of a server. Names of prompts get its prefix.
func (l *session) itemsOf(ctx context.Context, s *peer, method string) []json.RawMessage {
	connected := l.offering(s, method)
	if connected == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.listTime, fmt.Errorf("no answer within %v", s.listTime))
	defer cancel()
	items, err := connected.List(ctx, method)
	if err != nil {
		l.tell(fmt.Sprintf("the server %s does not answer %s: %s", s.Name, method, starling.PlainError(err)))
		return nil
	}
	// A strict client would drop the lists of all servers because of one invalid item.
	items = slices.DeleteFunc(items, func(item json.RawMessage) bool {
		var said struct{ Name, URI, URITemplate *string }
		odd := json.Unmarshal(item, &said) != nil || said.Name == nil
		return odd || method == "resources/list" && said.URI == nil || method == "resources/templates/list" && said.URITemplate == nil
	})
	for i := range items {
		if method == "prompts/list" {
			items[i] = renamed(items[i], func(name string) string { return s.Name + "_" + name })
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.lists[method] = items
	return items
}

// renamed returns a JSON object with another name, and otherwise unchanged.
func renamed(object json.RawMessage, rename func(string) string) json.RawMessage {
	return inside(object, "name", func(value json.RawMessage) json.RawMessage {
		var name string
		if json.Unmarshal(value, &name) == nil {
			value = canon.Quote(rename(name))
		}
		return value
	})
}

// request calls the tool that reads a resource or gets a prompt, on one server after another
// until one answers, or asks the server that has a task. Each call is a run.
func (l *session) request(ctx context.Context, c mcpsrv.Call) (result mcpsrv.Result, err error) {
	var asked struct{ URI, Name, TaskID string }
	_ = json.Unmarshal(c.Arguments, &asked)         // the schema is checked with the call
	prefix, name, _ := strings.Cut(asked.Name, "_") // no name of a server has an underscore
	servers := slices.DeleteFunc(slices.Clone(l.servers), func(s *peer) bool {
		return l.offering(s, c.Method) == nil || c.Method == "prompts/get" && s.Name != prefix
	})
	if c.Arguments = renamed(c.Arguments, func(string) string { return name }); asked.TaskID != "" && len(servers) > 1 {
		servers = slices.DeleteFunc(servers, func(s *peer) bool {
			connected := l.offering(s, c.Method)
			if connected != nil {
				_, err = connected.Request(ctx, "tasks/get", c.Arguments)
			}
			return connected == nil || err != nil
		})
	}
	tools := l.recording.with(mcptool.SourcePrefix + c.Method)
	if c.Method == "prompts/get" {
		tools = []string{prefix + "_prompts_get"}
	}
	if result, ok, err := l.replayed(ctx, c, tools); ok {
		return result, err
	}
	err = fmt.Errorf("%w: no connected server has %s%s%s; see list_servers", mcpsrv.ErrHost, asked.URI, asked.Name, asked.TaskID)
	for _, s := range l.owners(ctx, servers, asked.URI) {
		result, err = l.run(ctx, starling.NewRunID(), l.offering(s, c.Method).Method(c.Method), c)
		if err == nil && result.Error == "" || ctx.Err() != nil {
			break
		}
	}
	return result, err
}

// Request implements [mcpsrv.Mirror].
func (l *session) Request(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	var asked struct {
		URI string
		Ref struct{ Type, Name, URI string }
	}
	_ = json.Unmarshal(params, &asked) // another form names no server
	servers := l.servers
	switch method {
	case "logging/setLevel":
		l.mu.Lock()
		l.level = params
		l.mu.Unlock()
		for _, s := range servers {
			if connected := l.offering(s, method); connected != nil {
				_, _ = connected.Request(ctx, method, params) // the others go on
			}
		}
		return nil, nil
	case "tasks/get", "tasks/cancel", "tasks/list":
		answer, err := json.RawMessage(nil), error(mcptool.ErrNoMethod)
		for _, s := range servers {
			if connected := l.offering(s, method); connected != nil {
				if answer, err = connected.Request(ctx, method, params); err == nil {
					break
				}
			}
		}
		return answer, err
	case "completion/complete":
		if asked.Ref.Type == "ref/prompt" {
			prefix, name, _ := strings.Cut(asked.Ref.Name, "_")
			servers = slices.DeleteFunc(slices.Clone(servers), func(s *peer) bool { return s.Name != prefix })
			params = inside(params, "ref", func(ref json.RawMessage) json.RawMessage { return renamed(ref, func(string) string { return name }) })
			break
		}
		servers = l.owners(ctx, servers, asked.Ref.URI)
	default:
		servers = l.owners(ctx, servers, asked.URI)
	}
	for _, s := range servers {
		if connected := l.offering(s, strings.Replace(method, "completion/", "completions/", 1)); connected != nil {
			return connected.Request(ctx, method, params)
		}
	}
	return nil, mcptool.ErrNoMethod
}

// Notify implements [mcpsrv.Mirror].
func (l *session) Notify(ctx context.Context, method string, params json.RawMessage) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.servers {
		if s.connected != nil && !s.Shared {
			go func(to *starling.Server) { _ = to.Notify(context.WithoutCancel(ctx), method, params) }(s.connected) // a server that has gone needs none
		}
	}
}

// Greetings implements [mcpsrv.Mirror].
func (l *session) Greetings() map[string]mcptool.Greeting {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all := map[string]mcptool.Greeting{}
	for _, s := range l.servers {
		if s.connected != nil && s.module != nil { // and its instructions are accepted, if it has any
			all[s.Name] = s.connected.Greeting()
		}
	}
	return all
}

// inside returns a JSON object with another value of one member.
func inside(object json.RawMessage, name string, change func(json.RawMessage) json.RawMessage) json.RawMessage {
	members := canon.Split(object)
	if members[name] == nil {
		return object
	}
	members[name] = change(members[name])
	return canon.Join(members)
}

var templateVariable = lazy.Regexp(`\{.*?\}`)

// fits reports whether a URI is one of a template, whose variables stand for any text.
func fits(b *work.Budget, template, uri string) bool {
	if b.Spend((len(template)+len(uri))/64+1) != nil {
		return false
	}
	parts := templateVariable().Split(template, -1)
	last := len(parts) - 1
	if last == 0 {
		return uri == template && template != ""
	}
	uri, found := strings.CutPrefix(uri, parts[0])
	for i := 1; i < last && found; i++ {
		_, uri, found = strings.Cut(uri, parts[i])
	}
	return found && strings.HasSuffix(uri, parts[last])
}

// owners returns the servers that list a URI, or else those with a matching template, or
// else all.
func (l *session) owners(ctx context.Context, servers []*peer, uri string) []*peer {
	if len(servers) == 1 {
		return servers
	}
	budget := work.For(ctx, len(uri))
	for _, method := range []string{"resources/list", "resources/templates/list"} {
		var owners []*peer
		for _, s := range servers {
			l.mu.RLock()
			items, known := s.lists[method]
			l.mu.RUnlock()
			if !known {
				items = l.itemsOf(ctx, s, method)
			}
			if slices.ContainsFunc(items, func(item json.RawMessage) bool {
				var said struct{ URI, URITemplate string }
				_ = json.Unmarshal(item, &said) // an invalid item has neither
				return fits(budget, said.URI+said.URITemplate, uri)
			}) {
				owners = append(owners, s)
			}
		}
		if owners != nil {
			return owners
		}
	}
	return servers
}
