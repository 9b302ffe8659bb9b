// Calls of other tools, over the import http: a request to starling:call is answered by
// the tool that its body names (spec/abi.md, section 5).

import { decode, encode, http } from "./host.js";
import { read, write } from "./json.js";

/**
 * callTool returns the document of the call: { output } or { error: { type, message } }.
 * A call that was not made throws: with the name of the rule, if one forbids it.
 */
export function callTool(tool, input) {
  const body = new Uint8Array(encode(write({ tool, input })));
  const head = new Uint8Array(encode(`POST starling:call HTTP/1.1\r\nContent-Length: ${body.length}\r\n\r\n`));
  const request = new Uint8Array(head.length + body.length);
  request.set(head);
  request.set(body, head.length);
  const { status, bytes } = http(request.buffer);
  const text = decode(bytes);
  if (status < 0) return { error: { type: "denied", message: text } };
  return read(text.slice(text.indexOf("\r\n\r\n") + 4));
}
