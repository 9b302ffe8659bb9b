// Package mcpsrv is a server for the Model Context Protocol: it lets an assistant
// look into a log, and call a tenant's tools.
//
// Over a log there are seven tools, get_receipt if a key signs receipts, and all of them read: list_runs, get_run, get_event,
// summarize_run, validate_run, diff_runs and search_runs. They look at a [eventview.View],
// so a tenant's assistant finds only the tenant's runs, and each call reads the log anew.
//
// Tools of a tenant come from a [Tools]. Each call is a recorded run, whose id is in the
// result's _meta as "io.github.starling-host/run_id", so that the same assistant can look at what happened
// with the tools above.
//
// A call that its client cancels stops, its run ends as cancelled, and there is no response.
// Over standard input, and over HTTP before version 2026-07-28 of the protocol, cancelling
// takes a notification, and a broken connection cancels nothing; from that version on,
// closing the connection of a request cancels it. A notification over HTTP may reach another
// process than the one that serves the request. It still cancels the call of a tenant's tool
// if both are in one session; the client has to ignore the response, which is the error that
// the call was cancelled.
//
// Over standard input a line that is not a message, or is too long, is answered with an
// error. A client that closes its end is still answered.
//
// The clients of one user, over standard input ([ServeStdio]) and over HTTP on this machine
// ([ServeLocal]), can also receive the effects of a call while it runs, the output of its
// tool, and changes of the tools. In a session over HTTP a cancelled call is answered with
// an error, because that ends the stream of its response.
//
// # What an assistant is trusted with
//
// Everything that comes out of a log or a module may have been written to deceive the model
// that reads it. It leaves as data: as members of a JSON document, with the characters
// escaped that hide or reorder text, and bounded in length. A result of a tenant's tool that
// is a single text is passed on unchanged. Descriptions of tools are cut at 4 KiB. That
// keeps text from being taken for something else; it does not make it true.
package mcpsrv
