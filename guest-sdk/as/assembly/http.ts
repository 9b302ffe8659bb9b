import { encode, exchange } from "./host";
import { Json } from "./json";
import { failure } from "./tool";

/** A request that `send` sends. */
export class Request {
  headers: string[] = [];
  body: ArrayBuffer | null = null;
  times: i32 = 0;

  constructor(public method: string, public url: string) {}

  header(name: string, value: string): Request {
    assert(!(name + value).includes("\r") && !(name + value).includes("\n"), "a header has a line break");
    this.headers.push(name + ": " + value + "\r\n");
    return this;
  }

  /** Gives the exchange its name in the record. */
  effect(name: string): Request { return this.header("Starling-Effect", name); }

  /** Bounds the time of one exchange, in milliseconds. */
  timeout(milliseconds: u32): Request { return this.header("Starling-Timeout", milliseconds.toString()); }

  text(body: string): Request {
    this.body = encode(body);
    return this;
  }

  json(body: Json): Request { return this.header("Content-Type", "application/json").text(body.toString()); }

  /**
   * Sends the request again, up to this many times, if the connection fails or takes too long,
   * or the status is 429, 502, 503 or 504.
   */
  retries(times: i32): Request {
    this.times = times;
    return this;
  }

  send(): Response {
    const body = this.body;
    const fragment = this.url.indexOf("#");
    const target = escapeExcept(fragment < 0 ? this.url : this.url.substring(0, fragment), true);
    let head = this.method + " " + target + " HTTP/1.1\r\n" + this.headers.join("");
    if (body || this.method == "POST" || this.method == "PUT" || this.method == "PATCH") {
      head += "Content-Length: " + (body ? body.byteLength : 0).toString() + "\r\n";
    }
    const start = encode(head + "\r\n");
    const message = new ArrayBuffer(start.byteLength + (body ? body.byteLength : 0));
    memory.copy(changetype<usize>(message), changetype<usize>(start), start.byteLength);
    if (body) memory.copy(changetype<usize>(message) + start.byteLength, changetype<usize>(body), body.byteLength);
    let response = new Response(message);
    for (let left = this.times; left > 0 && response.passing; left--) response = new Response(message);
    return response;
  }
}

const reasons: string[] = ["denied", "network", "timeout", "too_large", "malformed"];

/** A response, or the reason why there is none. */
export class Response {
  /** The status, or 0 if there is no response. */
  status: i32 = 0;
  /** denied, network, timeout, too_large or malformed; or "". */
  reason: string = "";
  /** What a tool may return if there is no response. */
  failure: Json = Json.null();
  /** Whether another attempt may succeed. */
  passing: bool = false;
  bytes: ArrayBuffer = new ArrayBuffer(0);
  private head: string = "";

  constructor(message: ArrayBuffer) {
    const answer = exchange(message);
    let text = "the response is not in the form of HTTP";
    if (answer.status >= 0) {
      if (!this.read(answer.bytes)) this.reason = "network";
    } else {
      this.reason = answer.status >= -5 ? reasons[<i32>(-1 - answer.status)] : "network";
      text = String.UTF8.decode(answer.bytes);
    }
    if (this.status == 0) {
      this.passing = this.reason == "network" || this.reason == "timeout";
      this.failure = failure(this.passing ? "transient" : this.reason == "denied" ? "cancel" : "tool", "http: " + this.reason + ": " + text);
    }
  }

  /** Whether there is no response. */
  get failed(): bool { return this.status == 0; }

  private read(answer: ArrayBuffer): bool {
    const at = Uint8Array.wrap(answer);
    let end = 0;
    while (end + 4 <= at.length && !(at[end] == 13 && at[end + 1] == 10 && at[end + 2] == 13 && at[end + 3] == 10)) end++;
    const head = String.UTF8.decode(answer.slice(0, end));
    const words = head.split(" ", 2);
    const status = words.length > 1 ? <i32>parseInt(words[1].substring(0, 3)) : 0;
    if (end + 4 > at.length || !words[0].startsWith("HTTP/") || status < 100) return false;
    this.status = status;
    this.head = head + "\r\n";
    this.bytes = answer.slice(end + 4);
    this.passing = status == 429 || (status >= 502 && status <= 504);
    return true;
  }

  /** Returns the first header with this name, in any case, or "". */
  header(name: string): string {
    const from = this.head.toLowerCase().indexOf("\r\n" + name.toLowerCase() + ":");
    if (from < 0) return "";
    const start = from + name.length + 3;
    return this.head.substring(start, this.head.indexOf("\r\n", start)).trim();
  }

  text(): string { return String.UTF8.decode(this.bytes); }

  /** Reads the body as JSON. A value of the kind Null stands for a body that is not JSON. */
  json(): Json {
    const json = Json.parse(this.text());
    return json ? json : Json.null();
  }
}

export function get(url: string): Request { return new Request("GET", url); }

export function post(url: string, body: string): Request { return new Request("POST", url).text(body); }

/** Returns text as one segment of a path, or as a value of a query. */
export function escape(text: string): string { return escapeExcept(text, false); }

function escapeExcept(text: string, address: bool): string {
  const bytes = Uint8Array.wrap(encode(text));
  let out = "";
  for (let i = 0; i < bytes.length; i++) {
    const c = bytes[i];
    const letter = (c | 0x20) >= 0x61 && (c | 0x20) <= 0x7a;
    const plain = address ? c > 0x20 && c < 0x7f : letter || (c >= 0x30 && c <= 0x39) || c == 0x2d || c == 0x2e || c == 0x5f || c == 0x7e;
    out += plain ? String.fromCharCode(c) : "%" + (c < 16 ? "0" : "") + (<u32>c).toString(16).toUpperCase();
  }
  return out;
}
