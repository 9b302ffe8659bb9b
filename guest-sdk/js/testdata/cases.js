// What a tool may do, one case for each row of jsguests_test.go.
import { cancel, discard, now, random, snooze, transient } from "starling";

const url = "http://h/a b?q=ä#part";

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const lose = async () => { await wait(5); throw new TypeError("lost"); };

const cases = {
  nothing: () => {},
  call: (input, call) => call,
  numbers: ({ n }) => [n, Number.isInteger(n)],
  text: ({ text }) => [text, text.length, [...new TextEncoder().encode(text)], new TextDecoder().decode(new TextEncoder().encode(text))],
  imports: () => [now(), String(random()), Date.now(), new Date().toISOString(), Math.random() < 1, crypto.randomUUID().length],
  virtual: async () => {
    const began = Date.now();
    await new Promise((resolve) => setTimeout(resolve, 60_000));
    while (Date.now() < began + 60_010);
    return Math.round((Date.now() - began) / 1000);
  },
  fresh: () => { globalThis.calls = (globalThis.calls ?? 0) + 1; return globalThis.calls; },
  log: () => { console.log("a", { b: 1 }); console.error(new Error("c")); console.log();
    console.info("%s: %d%%", "d", 5, new Map([[1n, new Set([undefined])]]), { e: new Error("f"), g: Symbol("h") }, 1n, new Error("i", { cause: 1 })); },

  error: () => { throw new Error("no such city"); },
  mistake: () => undefined.city,
  string: () => { throw "a text"; },
  transient: () => { throw transient("busy"); },
  cancel: () => { throw cancel(new Error("not for you")); },
  discard: async () => { throw discard("never"); },
  snooze: () => { throw snooze(1500, "later"); },
  pending: () => new Promise(() => {}),
  timers: async () => {
    const fired = [];
    const delays = Array.from({ length: 500 }, (_, i) => 20 * ((i * 7919) % 503));
    const ids = delays.map((ms) => setTimeout(() => fired.push(ms), ms));
    ids.forEach((id, i) => { if (i % 2) clearTimeout(id); });
    let ticks = 0;
    const interval = setInterval(() => { if (++ticks === 3) clearInterval(interval); }, 1000);
    await wait(20_000);
    return [fired.length, fired.every((ms, i) => i === 0 || fired[i - 1] <= ms), ticks];
  },
  made: () => { class Ours extends TypeError { constructor() { super("ours"); } } throw new Ours(); },
  several: () => Promise.any([Promise.reject(new Error("one")), Promise.reject(new Error("two"))]),
  mute: () => { throw Object.defineProperty(new Error("x"), "message", { get() { throw new Error("y"); } }); },
  timer: () => new Promise(() => setTimeout(() => { throw new Error("in a timer"); })),
  microtask: () => new Promise(() => queueMicrotask(() => { throw new Error("in a microtask"); })),
  forgotten: async () => { lose(); await wait(50); return 1; },
  beside: () => { Promise.reject(transient("not kept")); return 1; },
  awaited: async () => {
    const late = lose().catch(() => "caught");
    const first = Promise.race([lose(), wait(1).then(() => "first")]);
    return [await late, await first, (await Promise.allSettled([1, lose()])).map(({ status }) => status)];
  },
  thrown: () => { throw { code: 7 }; },
  circle: () => { const a = {}; a.a = a; return a; },
  deep: () => { const f = () => f() + 1; return f(); },

  get: async () => {
    const response = await fetch(url, { headers: { Accept: "text/plain", "Starling-Effect": "look" } });
    return [response.status, response.ok, response.headers.get("X-Two"), await response.text()];
  },
  post: async () => (await fetch("http://h", { method: "post", body: JSON.stringify({ a: "ä" }) })).json(),
  form: async () => (await fetch("http://h/", { method: "PUT", body: new URLSearchParams({ a: "1 2", b: "&" }) })).status,
  "text of it": async () => { const r = await fetch("http://h/"), text = await r.text(); return [r.headers.get("content-encoding"), text.length, text.slice(0, 12)]; },
  large: async () => (await (await fetch("http://h/")).bytes()).length,
  caught: () => fetch("http://h/").catch((error) => [error.name, error.reason, error.message]),
  uncaught: () => fetch("http://h/"),
  inject: () => fetch("http://h/", { headers: { A: "b\r\nC: d" } }),
  request: async () => {
    const request = new Request(url, { method: "POST", body: "{}", headers: { "Content-Type": "application/json" } });
    const { status } = await fetch(new Request("http://h/", request));
    const called = await fetch(request, { signal: AbortSignal.abort() }).catch((error) => error.name);
    return [status, request.headers.get("content-type"), structuredClone({ a: 1n }).a === 1n, called];
  },
  same: ({ v }) => v,
  digits: async ({ n }) => [n, typeof n, typeof 5, { n: -n - 1n }, JSON.parse('[123456789012345678901234567890, 1.5, 12]'), JSON.stringify({ n }), await Response.json({ n }).json(),
    JSON.parse(`["${"9".repeat(20)}", ${n}]`, (key, value) => (typeof value === "bigint" ? [value, key] : value)), 9007199254740991],
  halves: ({ text }) => ({ [text.slice(0, 4)]: [text.slice(0, 4), text.slice(4), "\\ud800"] }),
  halfError: ({ text }) => { throw new Error(text.slice(0, 4)); },
  unpacked: async ({ packed, format }) => {
    const bytes = Uint8Array.fromBase64(packed), streamed = new DecompressionStream(format), writer = streamed.writable.getWriter();
    writer.write(bytes.subarray(0, 5));
    writer.write(bytes.subarray(5));
    writer.close();
    const text = await new Response(streamed.readable).text();
    const unpack = (bytes) => new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream(format))).text();
    const chunks = await Array.fromAsync(new Response(text).body);
    return [text.length, text.slice(0, 12), text === await unpack(bytes), await unpack(bytes.subarray(0, 9)).catch((error) => error.name), chunks.length];
  },
  address: () => ["../a b?q#h", "//o:80/x/../y", "?x=1", "HTTPS://U:443"].map((text) => new URL(text, "http://h/p/q/r").href),
};

export default { name: "cases", execute: (input, call) => cases[input.case](input, call) };
