// Package daemon serves many tenants, who do not trust each other, over HTTP: they run
// tools and agents and look at their runs.
//
// spec/openapi.yaml is the contract. [Routes] is the one list of routes; tests hold the
// mux and the contract against it. Every request goes through the same steps (serve.go):
//
//	route      an unknown path is 404, another method 405
//	admit      the API key alone determines the tenant
//	rate       a tenant has a number of requests per second
//	handle     with an [Account] and the tenant's view of the log
//	problem    every failure is one document of RFC 9457 (routes.go)
//
// # Isolation
//
// The id of a run is TENANT/ULID. Requests and responses have the ULID alone, and the
// tenant comes from the credential, so a request cannot name the run of another tenant.
// The responses for an absent id, for the id of another tenant's run and for text that is
// no id are the same, byte for byte.
//
// # Tenant snapshots
//
// The daemon reads the row of a tenant for each request and each run. The row has a
// revision, which every change of the tenant's data key, policy or modules raises. As long
// as the revision is unchanged, the daemon takes these from a snapshot in memory
// (account.go).
//
// # Work
//
// A request for work writes the first events of a run and a job in one transaction, and is
// answered once that is durable. The queue hands the job to any host on the database
// (execute.go). This is what happens when the process dies:
//
//	before the transaction   nothing was done, and no client was answered
//	after it                 the next process, or another host, executes the run
//	in the middle of a run   the run goes on where its log ends; recorded effects are
//	                         not repeated
//	before the response      a request with the same Idempotency-Key gets it
//
// To wait for a run, the daemon reads its log until it ends. So any process may
// execute a run, and a process that started later can wait for it as well.
package daemon
