// Package starlinghttp makes net/http work in a tool.
//
// A module has no sockets; its HTTP exchanges are one import of the host.
// [Transport] is an http.RoundTripper over that import, so an ordinary
// http.Client runs on it, with its redirects, its request bodies, its timeouts
// and its contexts:
//
//	client := starlinghttp.Client()
//	resp, err := client.Get("https://api.example.com/customers/42")
//
// A library that uses http.DefaultClient is served by one line in init:
//
//	http.DefaultTransport = starlinghttp.Transport{}
//
// The package does not do that by itself, because importing a package should
// not change another one. A library that builds its own http.Transport cannot
// be served: its connections fail.
//
// An exchange is a single step. The request body is read to its end before, the response is in memory
// afterwards, and nothing of the tool runs in between. A context that is cancelled meanwhile is noticed
// after the exchange. A deadline goes with the request, in a header that the host does not send: the
// host ends the exchange then. Time in a module is virtual, and an exchange moves it by the time that
// the host recorded: a timeout is measured on that clock, live and on replay. Timers that were due
// during an exchange fire before it returns.
//
// If the host refuses or fails, http.Client returns a *[starling.HTTPError] inside its *url.Error, so
// errors.Is finds [starling.ErrDenied] and its siblings, and the error is a net.Error.
//
// [Transport] does not ask for compression. If a server compresses the response anyway, it undoes gzip
// and deflate, as http.Transport does, and any other coding is an error. A request with a header
// Accept-Encoding gets the response as it was sent. Letters of other scripts are percent-encoded in
// paths and queries, and written in punycode in hosts.
//
// net/http makes a module 10 MB large. Tools that only exchange messages use
// [starling.Do].
package starlinghttp
