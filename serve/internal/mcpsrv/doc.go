// Package mcpsrv is a server for the Model Context Protocol: it lets an assistant
// look into a log, and call a tenant's tools.
//
// Over a log there are seven tools, and all of them read: list_runs, get_run,
// get_event, summarize_run, validate_run, diff_runs and search_runs. What they look
// at is a [eventview.View], so a tenant's assistant finds the tenant's runs and
// nothing else, and each call reads the log anew.
//
// Tools of a tenant come from a [Tools]. Each call is a recorded run, whose id is in
// the result's _meta as "starling/run_id", so that the same assistant can look at
// what happened with the tools above.
//
// A call that its client cancels stops, its run ends as cancelled, and there is no
// response. Over standard input, and over HTTP before version 2026-07-28 of the
// protocol, that takes a notification, and a connection that breaks cancels nothing;
// from then on, to close the connection of a request is to cancel it. A notification
// over HTTP that comes to another process than the one that serves the request cancels
// the call of a tenant's tool all the same, as long as both are of one session, and its
// response, with the error that it was cancelled, is for the client to pass over.
//
// Over standard input a line that is no message, or too long, is answered with an error. A
// client that closes its end is still answered.
//
// The clients of one user, over standard input ([ServeStdio]) and over HTTP on this machine
// ([ServeLocal]), can also be told of the effects of a call while it runs, of what its tool
// has written, and of changes of the tools. In a session over HTTP a call that was cancelled
// is answered with an error, because that ends the stream of its response.
//
// # What an assistant is trusted with
//
// Everything that comes out of a log or a module may have been written to deceive
// the model that reads it. It leaves as data: as members of a JSON document, with
// the characters escaped that hide or reorder text, and bounded in length. A result of
// a tenant's tool that is a single text is passed on as it is. Descriptions of tools are
// cut at 4 KiB. That keeps text from being taken for something else; it does not make
// it true.
package mcpsrv
