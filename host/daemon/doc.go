// Package daemon is the host over HTTP: many tenants, who do not trust each other,
// run tools and agents and look at what they did.
//
// spec/openapi.yaml is the contract, and [Routes] the one list of what there is:
// the mux, the tests and the contract are held against it. A request goes through
// the same steps whatever it asks for (serve.go):
//
//	route      what is not in the list is 404, another method 405
//	admit      the key says who asks; nothing else does
//	rate       so many requests per second and tenant
//	handle     with an [Account] and the part of the world that is the tenant's
//	problem    whatever goes wrong is one document of RFC 9457 (problem.go)
//
// # Whose is it
//
// The id of a run is TENANT/ULID. Requests and answers have the ULID alone, and the
// tenant comes from the credential, so that the run of somebody else cannot be
// named: it is looked for under the name of the one who asks, where it is not. An
// id that is absent, one that is foreign and one that is no id have the same
// answer, byte for byte.
//
// # What is known of a tenant
//
// Its row is read for each request and for each run, and with it a number that every
// change of its data key, its policy or its modules raises. As long as that number is
// the one that was read before, all these come from memory (account.go).
//
// # Work
//
// A request for work writes the first events of a run and a job, in one
// transaction, and is answered once that is durable. Jobs are handed out by the
// queue to whichever process is there (execute.go). If this one dies
//
//	before the transaction   nothing has happened, and nobody was told otherwise
//	after it                 the run is made by the next process, or by another one
//	in the middle of a run   it is taken up where its log ends; effects that are
//	                         recorded are not repeated
//	before the answer        a request with the same Idempotency-Key has it
//
// To wait for a run is to read its log until it ends. So it does not matter in
// which process it runs, nor whether this one was there from the beginning.
package daemon
