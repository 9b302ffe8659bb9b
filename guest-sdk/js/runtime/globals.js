// The globals that a tool may expect beside those of the language.

import * as host from "./host.js";
import { Headers, Response, fetch } from "./fetch.js";
import { TextDecoder, TextEncoder } from "./text.js";
import { describe, trace } from "./trace.js";
import { URL, URLSearchParams } from "./url.js";

const define = (properties, target = globalThis) => {
  for (const [name, value] of Object.entries(properties)) {
    Object.defineProperty(target, name, { value, writable: true, configurable: true });
  }
};

// ---- time: the clock of WASI, one recorded reading that the call moves on ----

const clock = "the clock";
const RealDate = Date;
const guardedDate = new Proxy(RealDate, {
  apply: (date) => (host.guard(clock), date()),
  construct: (date, args, target) => (args.length || host.guard(clock), Reflect.construct(date, args, target)),
});
const readDate = RealDate.now;
define({ now: () => (host.guard(clock), readDate()) }, RealDate);
define({ constructor: guardedDate }, RealDate.prototype);

// ---- timers: waiting moves the clock, and takes no time ----

let timers = [];
let lastTimer = 0;

const setTimer = (repeat) => (action, ms = 0, ...args) => {
  const every = Math.max(Number(ms) || 0, 1);
  timers.push({ id: ++lastTimer, at: performance.now() + every, every: repeat && every, action, args });
  return lastTimer;
};
const clearTimer = (id) => { timers = timers.filter((timer) => timer.id !== id); };

// nextTimer waits for the timer that is due first and fires it. It returns
// whether there was one.
export function nextTimer() {
  if (timers.length === 0) return false;
  const timer = timers.reduce((first, other) => (other.at < first.at ? other : first));
  host.sleep(Math.max(timer.at - performance.now(), 0) * 1e6);
  if (timer.every) timer.at += timer.every;
  else clearTimer(timer.id);
  timer.action(...timer.args);
  return true;
}

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

define({ random: () => ((uint32() >>> 5) * 2 ** 26 + (uint32() >>> 6)) / 2 ** 53 }, Math);

const crypto = {
  getRandomValues(array) {
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

const print = (...values) => host.print(values.map(text).join(" ") + "\n");

function text(value) {
  if (value instanceof Error) return [describe(value), ...trace(value)].join("\n    ");
  if (typeof value !== "object" || value === null) return String(value);
  try {
    return JSON.stringify(value);
  } catch {
    return describe(value);
  }
}

define({
  Date: guardedDate, setTimeout: setTimer(false), setInterval: setTimer(true), clearTimeout: clearTimer,
  clearInterval: clearTimer, crypto, console: { log: print, info: print, warn: print, error: print, debug: print },
  fetch, Headers, Response, TextDecoder, TextEncoder, URL, URLSearchParams,
});
