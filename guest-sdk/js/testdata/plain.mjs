// Compares what runtime/json.js makes of a result with what Node's JSON does, where JSON loses nothing.
import assert from "node:assert";
import { plain } from "../runtime/json.js";

let state = 11; // the same values each time
const draw = (n) => (state = (state * 48271) % 2147483647) % n;
const pick = (list) => list[draw(list.length)];
class Point { constructor() { this.x = 1; } toJSON() { return { at: [this.x] }; } }
class Own { constructor() { this.own = draw(9); } }
const leaf = () => pick([null, true, false, 0, -0, 1.5, -1e300, "", "é\u0000", "__proto__", new Date(draw(2e9) * 1000), new Point(), new Own(), new URL("http://h/a"), Object(5), Object("x"), undefined]);
const make = (depth) => (depth === 0 ? leaf() : pick([leaf, () => Array.from({ length: draw(4) }, () => make(depth - 1)),
  () => Object.fromEntries(Array.from({ length: draw(4) }, (_, i) => [pick(["a", "b c", "__proto__", "1", "ж"]) + pick(["", i]), make(depth - 1)])),
  () => Object.assign(Object.create(null), { n: make(depth - 1) })])());
for (let i = 0; i < 3000; i++) {
  const value = make(draw(5)), text = JSON.stringify(value);
  assert.strictEqual(JSON.stringify(await plain(value, "result")), text);
  assert.strictEqual(JSON.stringify(await plain(Promise.resolve(value), "result")), text);
}
const shared = { a: 1 };
assert.deepEqual(await plain([shared, shared], "result"), [{ a: 1 }, { a: 1 }]);
const typed = [Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array, Float64Array];
for (const type of typed) assert.deepStrictEqual(await plain({ t: new type([1, 2]) }, "result"), { t: [1, 2] });

const later = (value) => new Promise((resolve) => setTimeout(resolve, 1, value));
const error = Object.assign(new RangeError("far", { cause: new Error("why") }), { code: 7 });
for (const [value, want] of [
  [[later(1), { a: later([later(2)]) }, new Map([["k", later(3)]]), new Set([later(4)])], [1, { a: [2] }, { k: 3 }, [4]]],
  [await Promise.allSettled([1, Promise.reject(error)]), [{ status: "fulfilled", value: 1 }, { status: "rejected", reason: { name: "RangeError", message: "far", code: 7, cause: { name: "Error", message: "why" } } }]],
  [new Map([[1, "a"], [{ b: 2 }, new Set([1])]]), [[1, "a"], [{ b: 2 }, [1]]]],
  [new AggregateError([new Error("one")], "all"), { name: "AggregateError", message: "all", errors: [{ name: "Error", message: "one" }] }],
  [new Float64Array([0.5]), [0.5]], [new BigInt64Array([5n]), [5n]], [new Map(), {}], [new Set(), []],
]) assert.deepEqual(await plain(value, "result"), want);

const circle = { list: [{}] };
circle.list[0].up = circle;
for (const [value, where] of [
  [{ a: [1, { b: NaN }] }, "result.a[1].b is NaN"], [[Infinity], "result[0] is Infinity"], [[-Infinity], "result[0] is -Infinity"], [new Float32Array([NaN]), "result[0] is NaN"],
  [{ "a b": () => 1 }, 'result["a b"] is a function'], [Symbol("s"), "result is Symbol(s)"], [[Symbol("s")], "result[0] is Symbol(s)"], [{ f: class A {} }, "result.f is a function (A)"],
  [circle, "result.list[0].up is result itself"], [new Map([["m", new WeakMap()]]), "result.m is a WeakMap"], [new Map([[1, new Set([undefined, () => 1])]]), "result[0][1][1] is a function"],
  [[new Date(NaN)], "result[0] is an invalid Date"], [{ r: /x/ }, "result.r is a RegExp"], [{ h: new Headers([["a", "b"]]) }, "result.h is a Headers"], [[new Response("x")], "result[0] is a Response"],
  [{ p: new URLSearchParams("a=1") }, "result.p is a URLSearchParams"], [new ArrayBuffer(1), "result is a ArrayBuffer"], [[new DataView(new ArrayBuffer(1))], "result[0] is a DataView"],
  [[1, 2].values(), "result is a "], [(function* () {})(), "result is a "], [{ p: later(later(() => 1)) }, "result.p is a function"], [{ p: later([NaN]) }, "result.p[0] is NaN"],
]) await assert.rejects(plain(value, "result"), (thrown) => thrown.message.startsWith(where) || assert.fail(`${thrown.message}, want ${where}`));
await assert.rejects(plain([later(1), Promise.reject(new Error("lost"))], "result"), { message: "lost" });
