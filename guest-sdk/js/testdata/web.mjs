// Compares what runtime/ has of the Web's interfaces with what Node has.
import assert from "node:assert";

// host.js finds the imports of adapter.wat here. Of those it is UTF-8 that is needed.
globalThis.host = (what, value) => (what === 6
  ? Uint8Array.from(Buffer.from(value)).buffer
  : new TextDecoder("utf-8", { ignoreBOM: true }).decode(value));
const ours = Object.assign({}, ...await Promise.all(["clone", "events", "fetch", "text"].map((name) => import(`../runtime/${name}.js`))));

(await import("../runtime/host.js")).start();

const error = new RangeError("far", { cause: new Error("why") });
const circle = { list: [] };
circle.list.push(circle, circle);
const bytes = new Uint8Array([1, 2, 3]);
const values = {
  primitives: [undefined, null, true, 1.5, -0, NaN, 2n ** 64n, "ä"],
  sparse: [1, , 3],
  objects: { a: { b: new Date(5), c: /x/giu } },
  collections: new Map([[{ a: 1 }, new Set([1, "2"])]]),
  buffers: [bytes, bytes.buffer, bytes.subarray(1), new DataView(bytes.buffer, 1, 1), new Float64Array(2)],
  errors: [error, new TypeError()],
  boxed: [Object(1), Object("a"), Object(true)],
  circle,
  instance: new (class A { x = 1; #y = 2; get y() { return this.#y; } })(),
};
for (const [name, value] of Object.entries(values)) {
  assert.deepStrictEqual(ours.structuredClone(value), structuredClone(value), name);
}
const cloned = ours.structuredClone(circle);
assert(cloned !== circle && cloned.list[0] === cloned && cloned.list[1] === cloned);

const caught = (act) => {
  try {
    return act();
  } catch (thrown) {
    return [thrown?.name ?? thrown, thrown?.code];
  }
};

// Each is done with ours and with Node's.
const scenes = {
  "what cannot be cloned": ({ structuredClone }) =>
    [() => {}, Symbol("x"), Promise.resolve(), new WeakMap(), { deep: [Math.max] }].map((value) => caught(() => structuredClone(value))),

  events({ Event, CustomEvent, EventTarget }) {
    const target = new EventTarget(), seen = [];
    const both = (event) => seen.push(["both", event.type, event.target === target]);
    target.addEventListener("a", both);
    target.addEventListener("a", both);
    target.addEventListener("a", { handleEvent: (event) => { seen.push("object"); event.preventDefault(); } }, { once: true });
    target.addEventListener("a", function () { seen.push(this === target); });
    target.addEventListener("b", (event) => { seen.push(event.detail); event.stopImmediatePropagation(); });
    target.addEventListener("b", () => seen.push("not reached"));
    for (let i = 0; i < 2; i++) seen.push(target.dispatchEvent(new Event("a", { cancelable: true })));
    target.removeEventListener("a", both);
    seen.push(target.dispatchEvent(new Event("a")), target.dispatchEvent(new CustomEvent("b", { detail: 7 })));
    return seen;
  },

  signals({ AbortController, AbortSignal, EventTarget, Event }) {
    const controller = new AbortController(), other = new AbortController(), seen = [];
    const { signal } = controller;
    const any = AbortSignal.any([signal, other.signal]);
    const target = new EventTarget();
    target.addEventListener("x", () => seen.push("x"), { signal });
    target.dispatchEvent(new Event("x"));
    signal.onabort = (event) => seen.push([event.type, event.target === signal]);
    any.addEventListener("abort", () => seen.push("any"));
    seen.push(signal.aborted, caught(() => signal.throwIfAborted()), signal.reason);
    controller.abort();
    controller.abort("again");
    target.dispatchEvent(new Event("x"));
    return [seen, signal.aborted, any.aborted, signal.reason.name, signal.reason.message, signal.reason.code, any.reason === signal.reason,
      caught(() => signal.throwIfAborted()), AbortSignal.abort("why").reason, AbortSignal.abort().reason.name,
      AbortSignal.any([AbortSignal.abort(1)]).reason, AbortSignal.any([]).aborted];
  },

  async timeout({ AbortSignal }) {
    const signal = AbortSignal.timeout(1);
    const waiting = setTimeout(() => {}, 60_000); // Node does not wait for a signal alone
    await new Promise((resolve) => { signal.onabort = resolve; });
    clearTimeout(waiting);
    return [signal.reason.name, signal.reason.message];
  },

  "an exchange that is called off": ({ fetch, AbortSignal }) =>
    fetch("http://h/", { signal: AbortSignal.abort() }).catch((thrown) => thrown.name),

  async requests({ Request, Headers }) {
    const post = new Request("http://h/a?b#c", { method: "post", body: "ä", headers: { A: "1" } });
    const copy = post.clone(), put = new Request(post.clone(), { method: "PUT", headers: new Headers({ B: "2" }) });
    return [post, copy, put, new Request("http://h"), new Request("http://i", post.clone())].map(({ url, method, headers }) => [url, method, [...headers]])
      .concat([await post.text(), post.bodyUsed, copy.bodyUsed, await copy.text(), await put.text(),
        caught(() => post.clone()), caught(() => new Request("http://h", { method: "a b" })), post.signal.aborted]);
  },

  headers({ Headers, Response, Request }) {
    const list = [["set-cookie", "a=1"], ["B", "2"], ["Set-Cookie", "b=2; Expires=Wed, 09 Jun 2032 10:18:14 GMT"], ["b", "3"]];
    const all = new Headers(list), copy = new Headers(all), response = new Response("x", { headers: all }), record = new Headers({ "set-cookie": "c=3" });
    const of = (headers) => [headers.getSetCookie(), headers.get("set-cookie"), [...headers], [...headers.keys()], [...headers.values()], [...headers.entries()].length, headers.has("SET-COOKIE")];
    copy.append("set-cookie", "d=4");
    record.set("set-cookie", "e=5");
    const each = [];
    all.forEach((value, name) => each.push([name, value]));
    return [all, copy, response.headers, response.clone().headers, new Headers([...all]), record].map(of).concat(each);
  },

  async responses({ Response }) {
    const json = Response.json({ a: [1] }, { status: 201 }), copy = json.clone();
    return [json.status, json.ok, [...json.headers], await json.json(), json.bodyUsed, await copy.text(), caught(() => json.clone()),
      [...new Response("x").headers], [...new Response(new Uint8Array(2)).headers], await new Response().text()];
  },

  decoder: ({ TextDecoder }) => ["utf-8", "UTF8", "utf-16", "utf-16le", "latin1", " iso-8859-1", "windows-1252", "ascii", "no"].flatMap((label) =>
    [[], [0xef, 0xbb, 0xbf, 65], [0xff, 0xfe, 65, 0], [0x3d, 0xd8, 0, 0xde], [0, 0xd8, 65, 0], [65, 0, 66], [0xc3, 0xa4],
      Array.from({ length: 256 }, (_, i) => i)].flatMap((bytes) =>
      [{}, { fatal: true }, { ignoreBOM: true }].map((options) => caught(() => {
        const decoder = new TextDecoder(label, options);
        // Node 20 takes Windows-1252 for Latin 1, but not as a stream.
        return [decoder.encoding, decoder.decode(new Uint8Array(bytes), { stream: decoder.encoding === "windows-1252" })];
      })).map(([name, text]) => [name, /^ERR/.test(text) ? undefined : text]))),

  "decoder of a stream"({ TextDecoder }) {
    const texts = [[0xef, 0xbb, 0xbf, 65], [0xef, 0xbb, 0xbf, 0xef, 0xbb, 0xbf], [0xc3, 0xa4, 65, 0xf0, 0x9f, 0x98, 0x80, 66], [0xe0, 0x80, 65], [0xed, 0xa0, 0x80],
      [0xf4, 0x90, 65], [0xf0, 0x9f, 65], [0xc1, 0x80], [0xe2, 0x82], [0x80, 0x80, 0x80, 0xbf], [0xff, 0xfe, 65, 0], [0x3d, 0xd8, 0, 0xde, 66, 0], [0x3d, 0xd8, 65, 0],
      [0x3d, 0xd8, 0x3d, 0xd8, 0, 0xde], [0, 0xd8, 65], [0, 0xdc, 65, 0]];
    const decode = (label, options, bytes, size) => {
      const decoder = new TextDecoder(label, options), whole = new Uint8Array(bytes);
      const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => whole.slice(i * size, (i + 1) * size));
      const parts = pieces.map((piece) => [decoder.decode(piece.buffer, { stream: true }), piece.fill(0)][0]);
      return [...parts, decoder.decode(), decoder.decode(whole)];
    };
    return ["utf-8", "utf-16le"].flatMap((label) => [{}, { ignoreBOM: true }, { fatal: true }].flatMap((options) => texts.flatMap((bytes) =>
      [1, 2, 3, 9].map((size) => caught(() => decode(label, options, bytes, size))).map((made) => (made.length === 2 ? made[0] : made)))));
  },

  encoder: ({ TextEncoder }) => ["aä😀", "", "\uD800x"].flatMap((text) => [0, 1, 2, 3, 6, 7, 9].map((room) => {
    const target = new Uint8Array(room);
    return [new TextEncoder().encodeInto(text, target), [...target]];
  })),
};
for (const [name, scene] of Object.entries(scenes)) {
  assert.deepEqual(await scene(ours), await scene(globalThis), name);
}
