// Package egress is the one HTTP client for destinations that untrusted code
// chooses.
//
// A guest writes an HTTP request as text, the host carries it out, and the
// response goes back as text. The author of the guest also picks the URL, may
// run the DNS server that answers for it, and may run the server behind it.
// So the package trusts none of the three:
//
//	request text -> ParseRequest -> decision -> resolve -> check every address -> connect -> check again -> exchange -> response text
//
// # The request
//
// A request is a message/http document (RFC 9112) in absolute form, as Go's http.Request.WriteProxy
// writes it and as a string literal can hold it elsewhere:
//
//	POST http://127.0.0.1:8080/customers HTTP/1.1\r\n
//	Content-Type: application/json\r\n
//	Content-Length: 14\r\n
//	Starling-Effect: create customer\r\n
//	\r\n
//	{"name":"Ada"}
//
// [ParseRequest] accepts one spelling of everything, so that two readers of a recorded request can never
// disagree about it: lines end in CRLF, there is no folding, no space before a colon, no duplicate of a
// single-valued header, no user name in the URL, no fragment, no octal, hex or single-number address, no
// trailing dot, no name that is not ASCII. The body is exactly as long as Content-Length says, or
// chunked without extensions and trailers, or absent. Host may be left out; when it is there it must
// name the target. "Connection: close" and "Connection: keep-alive" are accepted and dropped, because
// clients write them and the guest has no connection; the other headers that manage a connection
// (Proxy-*, Keep-Alive, TE, Trailer, Upgrade, Expect, HTTP2-Settings) are refused, as are CONNECT and
// TRACE.
//
// # The decision
//
// Nothing is allowed until an [Authorizer] allows it. It is asked before anything leaves the host, with
// method, scheme, host, port and path in their one spelling. [Rules] is an authorizer that goes by
// hosts. Then the name is resolved once, and a single answer that lies in a special-purpose range of
// IANA, embeds an IPv4 address, or is IPv6 outside 2000::/3 refuses the request. The connection goes to
// an address that passed, not to the name, and the address is looked at once more between socket and
// connect.
//
// [Grant].Private opens loopback, RFC 1918 and unique local addresses. Rules give it only to rules that
// name a host in full: a name below ".example.com" that suddenly resolves to 127.0.0.1 is still refused.
// Link-local addresses and the metadata services of clouds are always refused.
//
// # Secrets
//
// A guest that may use a secret never has it. It writes {{secret:NAME}} in the value of a header or of a
// query parameter, or in the body, and the secret is put there after the decision, if that grants it: as
// it is in a header and in a body, percent-encoded in a query and in a form, escaped in a JSON body. A
// placeholder without a granted secret denies the request; it is never sent. The record keeps the
// request with its placeholders. Head and body of the response are searched for the secrets, and each is
// replaced by its placeholder, before anybody sees the response; see scrub.go for the forms that are
// found. With [Grant].Plain the request asks for no compression, and a compressed response, or a request
// for a part of a response, is refused.
//
// # The exchange
//
// One connection per exchange, HTTP/1.1, closed afterwards: nothing (socket,
// TLS session, cookie) outlives a request, so nothing is shared between guests.
// No proxy is used, whatever the environment says. Nothing is decompressed and
// no Accept-Encoding is added, so the record holds the bytes that the server
// sent and a gzip bomb stays as small as it was. Redirects are handed back to
// the guest: the next hop is its next request, under the same rules. Time,
// header and body are bounded; what does not fit is a typed failure, never a
// shortened response.
//
// # The response
//
// The response is again a message/http document: status line, headers sorted by canonical name with one
// line per value, the body. Framing and hop-by-hop headers are replaced by one Content-Length that
// matches the body, so the same answer always gives the same bytes. For HEAD, and with 304,
// Content-Length is the server's claim and no body follows; 204 has neither.
//
// # Failures
//
// Every failure is an [*Error] with an abi.Status and a text that depends on
// the request alone: no local port, no address that the guest did not write,
// no clock. Only when the caller's own context has ended is the error that of
// the context.
package egress
