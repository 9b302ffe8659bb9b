// Calls of other tools, over the import http: a request to starling:call is answered by
// the tool that its body names (spec/abi.md, section 5).

import { decode, encode, http } from "./host.js";
import { plain, read, simple, write } from "./json.js";
import { exchange } from "./loop.js";

/**
 * callTool resolves to the document of the call: { output } or { error: { type, message } }. The
 * error of a call that was not made has the type denied, and the name of the rule, if one forbids it.
 */
export async function callTool(tool, input) {
  const body = new Uint8Array(encode(write({ tool, input: simple(input) ? input : await plain(input, "input") })));
  const head = new Uint8Array(encode(`POST starling:call HTTP/1.1\r\nContent-Length: ${body.length}\r\n\r\n`));
  const request = new Uint8Array(head.length + body.length);
  request.set(head);
  request.set(body, head.length);
  const { status, bytes } = await exchange(() => http(request.buffer));
  const text = decode(bytes);
  if (status < 0) return { error: { type: "denied", message: text } };
  return read(text.slice(text.indexOf("\r\n\r\n") + 4));
}
