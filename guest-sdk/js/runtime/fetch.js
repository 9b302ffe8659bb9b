// fetch, over the import http. The exchange is made when no code runs: see loop.js.

import { AbortSignal, deadlineOf } from "./events.js";
import { guard, http } from "./host.js";
import { codings } from "./inflate.js";
import { read } from "./json.js";
import { exchange } from "./loop.js";
import { Blob, ReadableStream, join, streamOf } from "./streams.js";
import { TextDecoder, TextEncoder, toBuffer } from "./text.js";
import { URL, URLSearchParams } from "./url.js";

const reasons = { "-1": "denied", "-2": "network", "-3": "timeout", "-4": "too_large", "-5": "malformed" };
const kinds = { denied: "cancel", network: "transient", timeout: "transient" };

/** An exchange without a response. */
export class HTTPError extends Error {
  constructor(reason, text) {
    super(`http: ${reason.replace("_", " ")}${text && ": "}${text}`);
    this.name = "HTTPError";
    this.reason = reason;
    this.kind = kinds[reason] ?? "tool";
  }
}

const token = /^[A-Za-z0-9!#$%&'*+\-.^_`|~]+$/;

export class Headers {
  #fields = new Map(); // by name in small letters: all values

  constructor(init) {
    init ??= [];
    const fields = Symbol.iterator in init ? init : Object.entries(init);
    for (const [name, value] of fields) this.append(name, value);
  }

  append(name, value) {
    const key = String(name).toLowerCase();
    const text = String(value).trim();
    if (!token.test(key)) throw new TypeError(`${JSON.stringify(name)} is no name of a header`);
    if (/[\0-\x08\x0a-\x1f\x7f]/.test(text)) throw new TypeError(`the header ${name} holds a control character`);
    this.#fields.set(key, [...(this.#fields.get(key) ?? []), text]);
  }

  set(name, value) { this.delete(name); this.append(name, value); }
  delete(name) { this.#fields.delete(String(name).toLowerCase()); }
  has(name) { return this.#fields.has(String(name).toLowerCase()); }
  get(name) { return this.#fields.get(String(name).toLowerCase())?.join(", ") ?? null; }
  getSetCookie() { return this.#fields.get("set-cookie") ?? []; }
  forEach(each) { for (const [name, value] of this) each(value, name, this); }
  *keys() { for (const [name] of this) yield name; }
  *values() { for (const [, value] of this) yield value; }
  entries() { return this[Symbol.iterator](); }
  *[Symbol.iterator]() {
    for (const name of [...this.#fields.keys()].sort()) {
      for (const value of name === "set-cookie" ? this.getSetCookie() : [this.get(name)]) yield [name, value];
    }
  }
}

let copyBody; // of a message that has not been read

// Message is what requests and responses have in common: a body, which is read
// once.
class Message {
  #body;

  constructor(body, headers) {
    const { type, bytes } = toBody(body ?? "");
    this.#body = bytes;
    this.headers = new Headers(headers);
    if (type && !this.headers.has("content-type")) this.headers.set("content-type", type);
    this.bodyUsed = false;
  }

  async arrayBuffer() { return this.#take(); }
  async bytes() { return new Uint8Array(await this.#take()); }
  async text() { return new TextDecoder().decode(await this.#take()); }
  async json() { return read(new TextDecoder().decode(await this.#take())); }
  async blob() { return new Blob([await this.#take()], { type: this.headers.get("content-type") ?? "" }); }

  get body() {
    if (this.#body instanceof ReadableStream) return this.#body;
    return streamOf(() => {
      const bytes = new Uint8Array(copyBody(this));
      this.bodyUsed = true;
      return bytes;
    });
  }

  async #take() {
    const body = copyBody(this, true);
    this.bodyUsed = true;
    if (!(body instanceof ReadableStream)) return body;
    const chunks = [];
    for await (const chunk of body) chunks.push(chunk);
    return join(chunks).buffer;
  }

  static {
    copyBody = (message, reads) => {
      if (message.bodyUsed) throw new TypeError("the body has been read before");
      if (!reads && message.#body instanceof ReadableStream) throw new TypeError("a stream is read once, and sent as a whole: send await new Response(stream).bytes()");
      return message.#body;
    };
  }
}
export class Response extends Message {
  constructor(body, { status = 200, statusText = "", headers = [], url = "" } = {}) {
    super(body, headers);
    Object.assign(this, { status, statusText, url, redirected: false, type: "default" });
  }

  static json(value, init = {}) {
    const headers = new Headers(init.headers);
    if (!headers.has("content-type")) headers.set("content-type", "application/json");
    return new Response(JSON.stringify(value), { ...init, headers });
  }

  get ok() { return this.status >= 200 && this.status < 300; }
  clone() { return new Response(copyBody(this), this); }
}

export class Request extends Message {
  constructor(resource, init = {}) {
    const from = resource instanceof Request ? resource : {};
    const filled = [init, from].find((message) => message.hasBody);
    const body = (filled === init ? null : init.body) ?? (filled ? copyBody(filled) : null);
    const method = String(init.method ?? from.method ?? "GET");
    if (!token.test(method)) throw new TypeError(`${JSON.stringify(method)} is no method`);
    const verb = /^(delete|get|head|options|patch|post|put)$/i.test(method) ? method.toUpperCase() : method;
    super(body, init.headers ?? from.headers);
    Object.assign(this, { method: verb, url: new URL(from.url ?? resource).href, hasBody: body != null,
      signal: init.signal ?? from.signal ?? new AbortSignal() });
  }

  clone() { return new Request(this); }
}

// fetch says at once that there is no network yet: nobody would look at the
// promise of a tool that starts up.
export function fetch(resource, init) {
  guard("the network");
  return answered(resource, init, new Error());
}

// placed returns an error with the stack of the place from which an exchange was asked for.
export const placed = (error, at) => Object.defineProperty(error, "stack", { value: at.stack, writable: true, configurable: true });

async function answered(resource, init, at) {
  const request = new Request(resource, init);
  const { status, bytes } = await exchange(() => http(message(request)), request.signal);
  try {
    if (status < 0) throw new HTTPError(reasons[status] ?? "network", new TextDecoder().decode(bytes));
    return parse(bytes, request.url);
  } catch (error) {
    throw placed(error, at);
  }
}

// message returns a request in the form of RFC 9112 with an absolute target.
function message(request) {
  const { method, headers, hasBody } = request;
  const body = new Uint8Array(copyBody(request));
  const url = new URL(request.url);
  url.hash = "";
  if (hasBody || ["POST", "PUT", "PATCH"].includes(method)) headers.set("content-length", body.length);
  const left = Math.ceil(deadlineOf(request.signal) - performance.now());
  if (left < Infinity && !headers.has("starling-timeout")) headers.set("starling-timeout", Math.min(Math.max(left, 1), 2 ** 32 - 1));
  const fields = [...headers].map(([name, value]) => `${name}: ${value}\r\n`).join("");
  const head = new TextEncoder().encode(`${method} ${url.href} HTTP/1.1\r\n${fields}\r\n`);
  const all = new Uint8Array(head.length + body.length);
  all.set(head);
  all.set(body, head.length);
  return all.buffer;
}

function toBody(body) {
  if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) return { bytes: toBuffer(body) };
  if (body instanceof ReadableStream) return { bytes: body };
  if (body instanceof Blob) return { bytes: body.copy().buffer, type: body.type };
  const type = body instanceof URLSearchParams
    ? "application/x-www-form-urlencoded;charset=UTF-8"
    : body !== "" && "text/plain;charset=UTF-8";
  return { type, bytes: new TextEncoder().encode(String(body)).buffer };
}

// parse reads the response, whose form the contract guarantees.
function parse(buffer, url) {
  const bytes = new Uint8Array(buffer);
  const end = bytes.findIndex((byte, i) => byte === 10 && bytes[i - 1] === 13 && bytes[i - 2] === 10);
  const [line, ...fields] = new TextDecoder().decode(bytes.subarray(0, end - 3)).split("\r\n");
  const [, status, ...reason] = line.split(" ");
  const headers = fields.map((field) => {
    const colon = field.indexOf(":");
    return [field.slice(0, colon), field.slice(colon + 1)];
  });
  const all = new Headers(headers);
  const body = decoded(bytes.subarray(end + 1), all.get("content-encoding") ?? "");
  return new Response(body, { status: Number(status), statusText: reason.join(" "), headers: all, url });
}

// decoded undoes the content codings of a body, the last one first.
function decoded(body, names) {
  if (body.length === 0) return body;
  return names.toLowerCase().split(",").map((name) => name.trim()).filter(Boolean).reduceRight((bytes, name) => {
    if (!Object.hasOwn(codings, name)) throw new TypeError(`the response has the content coding ${name}, which a tool cannot undo: ask for gzip with the header Accept-Encoding`);
    return codings[name](bytes);
  }, body);
}
