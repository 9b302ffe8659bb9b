package starling

import (
	"context"
	"os"

	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/tool"
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
	db    *DB
	tools []*Tool
}

// Connect starts a server, or connects to it, and lists its tools, within 30 seconds. A
// server that ends is started again for the next call.
func (db *DB) Connect(ctx context.Context, o ServerOptions) (*Server, error) {
	client, err := o.MCP.Connect(ctx, o.Dir, os.Getenv)
	if err != nil {
		return nil, err
	}
	s := &Server{db: db}
	said := client.Definitions()
	for i, t := range client.Tools() {
		schema, err := tool.CompileSchema(t.Schema())
		if err != nil {
			schema = nil // the server checks its input itself
		}
		s.tools = append(s.tools, &Tool{Tool: t, db: db, said: &said[i], input: schema, policy: o.Policy})
	}
	db.opened(s, func() { client.Close() })
	return s, nil
}

// Tools returns the tools of the server in the order of their names.
func (s *Server) Tools() []*Tool { return s.tools }

// Close ends the connection, and a server that was started. Calls of its tools end.
func (s *Server) Close() { s.db.closeOne(s) }
