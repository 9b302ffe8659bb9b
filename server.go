package starling

import (
	"context"
	"encoding/json"
	"os"

	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/mcptool"
)

// ServerOptions say which server of the Model Context Protocol is meant, and under which
// conditions its tools run.
type ServerOptions struct {
	agentfile.MCP

	// Dir is where a command starts. Empty is the current directory.
	Dir string

	// Policy decides about the calls and their arguments. Nil allows all. A server is a program
	// outside of the sandbox: what it does in a call is not under the policy.
	Policy *policy.Policy
}

// Server is a connection to a server of the Model Context Protocol. Its tools are called as
// those of modules are, and each call is a recorded run. A replay takes the answers from the
// log and needs no server. [DB.Close] closes it.
type Server struct {
	db     *DB
	client *mcptool.Client
	policy *policy.Policy
}

// Connect starts a server, or connects to it, and lists its tools, within 30 seconds. A
// server that ends is started again for the next call.
func (db *DB) Connect(ctx context.Context, o ServerOptions) (*Server, error) {
	client, err := o.MCP.Connect(ctx, o.Dir, os.Getenv)
	if err != nil {
		return nil, err
	}
	s := &Server{db: db, client: client, policy: o.Policy}
	db.opened(s, func() { client.Close() })
	return s, nil
}

// Tools returns the tools of the server, as it listed them last, in the order of their names.
func (s *Server) Tools() (all []*Tool) {
	for _, t := range s.client.Tools() {
		said := t.(interface{ Definition() mcptool.Definition }).Definition()
		all = append(all, &Tool{Tool: t, db: s.db, said: &said, policy: s.policy})
	}
	return all
}

// Offers reports whether the server has "resources" or "prompts".
func (s *Server) Offers(what string) bool { return s.client.Offers(what) }

// List returns what the server lists by a method, "resources/list", "resources/templates/list"
// or "prompts/list", each item as the server wrote it.
func (s *Server) List(ctx context.Context, method string) ([]json.RawMessage, error) {
	return s.client.List(ctx, method)
}

// Method returns the tool whose call is a request of a method, "resources/read" or "prompts/get",
// with the parameters as input. It is not one of Tools.
func (s *Server) Method(method string) *Tool {
	return &Tool{Tool: s.client.Method(method), db: s.db, said: &mcptool.Definition{Name: method}, policy: s.policy}
}

// Refused returns the tools that the server lists and that cannot be called, and why.
func (s *Server) Refused() []mcptool.Refusal { return s.client.Refused() }

// Instructions returns what the server says of the use of its tools.
func (s *Server) Instructions() string { return s.client.Instructions() }

// LastWords returns the end of what the server has written beside its messages, such as on
// standard error, without secrets.
func (s *Server) LastWords() string { return s.client.LastWords() }

// Close ends the connection, and a server that was started. Calls of its tools end.
func (s *Server) Close() { s.db.closeOne(s) }
