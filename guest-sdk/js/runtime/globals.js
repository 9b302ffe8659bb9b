// The globals that a tool may expect beside those of the language.

import * as host from "./host.js";
import { structuredClone } from "./clone.js";
import { AbortController, AbortSignal, CustomEvent, Event, EventTarget } from "./events.js";
import { Headers, Request, Response, fetch } from "./fetch.js";
import { digits, read } from "./json.js";
import { localize } from "./locale.js";
import { clearTimer, setTimer } from "./loop.js";
import { Blob, DecompressionStream, ReadableStream, TransformStream, WritableStream } from "./streams.js";
import { TextDecoder, TextEncoder } from "./text.js";
import { describe, packageLoads, trace } from "./trace.js";
import { URL, URLSearchParams } from "./url.js";

export const define = (properties, target = globalThis) => {
  for (const [name, value] of Object.entries(properties)) {
    Object.defineProperty(target, name, { value, writable: true, configurable: true });
  }
};

// ---- time: the clock of WASI, one recorded reading that the call moves on ----

// A package may read the clock, or draw, while it is loaded: to see whether there
// is one, or to tell its copies apart. It finds the year 2000, and always the same
// numbers.
const guard = (what) => host.started() || packageLoads() || host.guard(what);

const clock = "the clock";
const RealDate = Date;
const guardedDate = new Proxy(RealDate, {
  apply: (date) => (guard(clock), date()),
  construct: (date, args, target) => (args.length || guard(clock), Reflect.construct(date, args, target)),
});
const readDate = RealDate.now;
define({ now: () => (guard(clock), readDate()) }, RealDate);
define({ constructor: guardedDate }, RealDate.prototype);

// ---- JSON: integers keep their digits ----

define({ parse: read }, JSON);
define({ toJSON() { return digits(this); } }, BigInt.prototype);

// ---- text in a language: that of en-US, or an error ----

localize(define);

// ---- randomness: the generator of WASI, from one recorded seed ----

const pool = new Uint32Array(64);
let drawn = pool.length;

function uint32() {
  if (drawn === pool.length) {
    host.entropy(pool.buffer);
    drawn = 0;
  }
  return pool[drawn++];
}

const draw = Math.random; // the same in each call
define({
  random() {
    guard("randomness");
    return host.started() ? ((uint32() >>> 5) * 2 ** 26 + (uint32() >>> 6)) / 2 ** 53 : draw();
  },
}, Math);

export const crypto = {
  getRandomValues(array) {
    if (!ArrayBuffer.isView(array)) throw new TypeError("getRandomValues fills a typed array, and this is none");
    if (!/^(Big)?(Ui|I)nt\d/.test(array[Symbol.toStringTag])) throw new DOMException("getRandomValues fills integers", "TypeMismatchError");
    if (array.byteLength > 65536) throw new DOMException("getRandomValues fills 65536 bytes at most", "QuotaExceededError");
    const bytes = new Uint8Array(array.byteLength);
    host.entropy(bytes.buffer);
    new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(bytes);
    return array;
  },
  randomUUID() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    return bytes.toHex().replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  },
};

// ---- the log ----

const print = (...values) => host.print(format(values).map(text).join(" ") + "\n");

// format puts values where a text asks for them, as in console.log("%s: %d", name, n).
function format(values) {
  const [first, ...rest] = values;
  if (typeof first !== "string" || rest.length === 0) return values;
  const filled = first.replace(/%([sdifjoOc%])/g, (whole, form) => {
    if (form === "%") return "%";
    if (rest.length === 0) return whole;
    const value = rest.shift();
    if (form === "c") return ""; // a style
    if ("di".includes(form) && typeof value !== "bigint") return String(form === "i" ? parseInt(value) : Number(value));
    return form === "f" ? String(parseFloat(value)) : text(value);
  });
  return [filled, ...rest];
}

function text(value) {
  if (value instanceof Error) return [describe(value), ...trace(value), ...causes(value)].join("\n    ");
  if (typeof value === "function") return plain("", value);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value !== "object" || value === null) return Object.is(value, -0) ? "-0" : String(value);
  const open = []; // the objects that hold the one that is looked at
  try {
    return JSON.stringify(value, function (name, item) {
      while (open.length > 0 && open.at(-1) !== this) open.pop();
      if (open.includes(item)) return "[Circular]";
      const shown = plain(name, typeof this[name] === "bigint" ? this[name] : item);
      if (typeof shown === "object" && shown !== null) open.push(shown);
      return shown;
    });
  } catch {
    return describe(value);
  }
}

// plain returns what is shown of a value that JSON does not know.
function plain(name, value) {
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "symbol") return String(value);
  if (typeof value === "function") return `[Function: ${value.name || "(anonymous)"}]`;
  if (value instanceof Error) return describe(value);
  if (value instanceof RegExp) return String(value);
  if (value instanceof Map || value instanceof Set || value instanceof Uint8Array) return [...value];
  return value;
}

function causes({ cause, errors }) {
  const all = [...(cause === undefined ? [] : [cause]), ...(Array.isArray(errors) ? errors : [])];
  return all.map((error) => `caused by ${error instanceof Error ? [describe(error), ...trace(error)].join("\n    ") : text(error)}`);
}

const setTimeout = setTimer(false);
const setImmediate = (action, ...args) => setTimeout(action, 0, ...args);

define({
  Date: guardedDate, setTimeout, setInterval: setTimer(true), clearTimeout: clearTimer, clearInterval: clearTimer,
  setImmediate, clearImmediate: clearTimer, crypto, console: {
    log: print, info: print, warn: print, error: print, debug: print, trace: print, dir: (value) => print(value), table: (value) => print(value),
    group: print, groupCollapsed: print, groupEnd() {}, assert: (held, ...values) => held || print("Assertion failed", ...values),
  },
  AbortController, AbortSignal, CustomEvent, Event, EventTarget, structuredClone,
  Blob, DecompressionStream, ReadableStream, TransformStream, WritableStream,
  fetch, Headers, Request, Response, TextDecoder, TextEncoder, URL, URLSearchParams, self: globalThis,
});
