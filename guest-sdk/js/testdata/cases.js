// What a tool may do, one case for each row of jsguests_test.go.
import { cancel, discard, now, random, snooze, transient } from "starling";

const url = "http://h/a b?q=ä#part";

const cases = {
  nothing: () => {},
  call: (input, call) => call,
  numbers: ({ n }) => [n, Number.isInteger(n)],
  text: ({ text }) => [text, text.length, [...new TextEncoder().encode(text)], new TextDecoder().decode(new TextEncoder().encode(text))],
  doors: () => [now(), String(random()), Date.now(), new Date().toISOString(), Math.random() < 1, crypto.randomUUID().length],
  virtual: async () => {
    const began = Date.now();
    await new Promise((resolve) => setTimeout(resolve, 60_000));
    while (Date.now() < began + 60_010);
    return Math.round((Date.now() - began) / 1000);
  },
  fresh: () => { globalThis.calls = (globalThis.calls ?? 0) + 1; return globalThis.calls; },
  log: () => { console.log("a", { b: 1 }); console.error(new Error("c")); },

  error: () => { throw new Error("no such city"); },
  mistake: () => undefined.city,
  string: () => { throw "a text"; },
  transient: () => { throw transient("busy"); },
  cancel: () => { throw cancel(new Error("not for you")); },
  discard: async () => { throw discard("never"); },
  snooze: () => { throw snooze(1500, "later"); },
  pending: () => new Promise(() => {}),
  timer: () => new Promise(() => setTimeout(() => { throw new Error("in a timer"); })),
  microtask: () => new Promise(() => queueMicrotask(() => { throw new Error("in a microtask"); })),
  circle: () => { const a = {}; a.a = a; return a; },
  deep: () => { const f = () => f() + 1; return f(); },

  get: async () => {
    const response = await fetch(url, { headers: { Accept: "text/plain", "Starling-Effect": "look" } });
    return [response.status, response.ok, response.headers.get("X-Two"), await response.text()];
  },
  post: async () => (await fetch("http://h", { method: "post", body: JSON.stringify({ a: "ä" }) })).json(),
  form: async () => (await fetch("http://h/", { method: "PUT", body: new URLSearchParams({ a: "1 2", b: "&" }) })).status,
  large: async () => (await (await fetch("http://h/")).bytes()).length,
  caught: () => fetch("http://h/").catch((error) => [error.name, error.reason, error.message]),
  uncaught: () => fetch("http://h/"),
  inject: () => fetch("http://h/", { headers: { A: "b\r\nC: d" } }),
  address: () => ["../a b?q#h", "//o:80/x/../y", "?x=1", "HTTPS://U:443"].map((text) => new URL(text, "http://h/p/q/r").href),
};

export default { name: "cases", execute: (input, call) => cases[input.case](input, call) };
