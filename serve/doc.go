// Package serve serves tools and agents to tenants that do not trust each other: over
// HTTP, in a web view, and to assistants that speak the Model Context Protocol.
//
// A file, host.yaml, describes a host ([File]): its database, the keys for its tenants
// (package tenant), its agents and its limits. [Open] opens what the file describes, and
// [Host.Serve] serves until the context ends:
//
//	file, err := serve.LoadFile("host.yaml")
//	host, err := serve.Open(ctx, file, serve.Options{})
//	defer host.Close()
//	err = host.Serve(ctx)
//
// Any number of hosts can share a database on a PostgreSQL server. Package queue hands the runs
// of the database to them. The tools of one user, without tenants, are in package gateway.
package serve
