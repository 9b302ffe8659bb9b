// Package eventview is what one reader may see of a log: the runs of one namespace,
// named without it. The web view and the MCP server read logs through a [View]
// and through nothing else, so what a tenant can name is what the tenant owns.
//
// A view reads. It has no method that appends, prunes or stores.
package eventview
