package starling

import (
	"cmp"
	"context"
	"os"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/runtime/tool"
)

// ServerOptions name a server of the Model Context Protocol and configure its tools.
type ServerOptions struct {
	agentfile.MCP

	// Dir is where a command starts. Empty is the current directory.
	Dir string

	// Policy decides about the calls and their arguments. Nil allows all. The policy does not
	// bind the server itself, which runs outside the sandbox.
	Policy *policy.Policy

	// MaxInput bounds the arguments of a call, in bytes. Zero is 4 MiB, as much as a message may have.
	MaxInput uint64
}

// Server is a connection to a server of the Model Context Protocol. Its tools are called
// like tools of modules, and each call is a recorded run. A replay takes the answers from
// the log and needs no server. [DB.Close] closes it.
type Server struct {
	*mcptool.Client

	db     *DB
	policy *policy.Policy
	most   uint64
}

// Connect starts a server, or connects to it, and lists its tools, within 30 seconds or its timeout. A
// server that exits is restarted for the next call.
func (db *DB) Connect(ctx context.Context, o ServerOptions) (*Server, error) {
	client, err := o.MCP.Connect(ctx, o.Dir, os.Getenv)
	if err != nil {
		return nil, err
	}
	s := &Server{Client: client, db: db, policy: o.Policy, most: cmp.Or(o.MaxInput, 4<<20)}
	db.opened(s, func() { client.Close() })
	return s, nil
}

// Tools returns the tools that the server last listed, sorted by name.
func (s *Server) Tools() []*Tool {
	return lists.Map(s.Client.Tools(), func(t tool.Tool) *Tool {
		said := t.(interface{ Definition() mcptool.Definition }).Definition()
		return &Tool{Tool: t, db: s.db, said: &said, policy: s.policy, most: s.most}
	})
}

// Offers reports whether the server has "resources", "prompts" or "tasks", as a capability or as an
// extension of the protocol.
func (s *Server) Offers(what string) bool {
	able := s.Greeting().Capabilities
	return able[what] != nil || canon.Split(able["extensions"])["io.modelcontextprotocol/"+what] != nil
}

// Method returns a tool that sends the request "resources/read", "prompts/get" or one about a task, with
// its input as parameters. Tools does not list it.
func (s *Server) Method(method string) *Tool {
	return &Tool{Tool: s.Client.Method(method), db: s.db, said: &mcptool.Definition{Name: method}, policy: s.policy, most: s.most}
}

// Instructions returns the server's instructions for the use of its tools.
func (s *Server) Instructions() string { return s.Greeting().Instructions }

// Close ends the connection, calls in flight, and the server if Connect started it.
func (s *Server) Close() { s.db.closeOne(s) }
