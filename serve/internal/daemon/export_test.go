package daemon

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// Routes returns all routes. What is not in the list is not served.
func Routes() []Route {
	public := make([]Route, len(routes))
	for i, r := range routes {
		public[i] = Route{Method: r.Method, Path: r.Path, Access: r.Access, Query: slices.Clone(r.Query)}
	}
	return public
}

// ProblemTypes returns the types of all problems that there are.
func ProblemTypes() []string {
	var types []string
	for _, k := range problemKinds {
		types = append(types, problemBase+k.name)
	}
	return types
}

// Read reads the tenants now, as Keep does every few seconds.
func (d *Directory) Read(ctx context.Context) error { return d.read(ctx) }

// HeldMemory returns how many bytes the requests of a tenant hold.
func (d *Daemon) HeldMemory(tenant string) int64 { return d.host.Memory.Held(tenant) }

// SetAnswerTime sets how long the acceptance of a run may take.
func (d *Daemon) SetAnswerTime(t time.Duration) { d.answerTime = t }

// Mount adds a web view and an MCP server.
func (d *Daemon) Mount(inspector, mcp http.Handler) {
	d.config.Inspector, d.config.MCP = inspector, mcp
	d.mux = d.newMux()
}
