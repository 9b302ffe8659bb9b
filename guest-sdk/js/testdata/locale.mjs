// Compares runtime/locale.js with Node's Intl in en-US: each text is the same, or an error.
import assert from "node:assert";
import { localize } from "../runtime/locale.js";

const ours = new Map();
localize((methods, target) => ours.set(target, { ...ours.get(target), ...methods }));
const both = (value, method, ...args) => {
  const prototype = [Number, BigInt, Date, String, Array].map((type) => type.prototype).find((prototype) => Object(value) instanceof prototype.constructor);
  let got;
  try {
    got = ours.get(prototype)[method].apply(value, args);
  } catch (error) {
    return error;
  }
  assert.deepStrictEqual(got, prototype[method].apply(value, args), `${String(value)}.${method}(${JSON.stringify(args)})`);
};
const right = (...args) => assert.ifError(both(...args));
const refused = (...args) => assert(both(...args) instanceof Error, JSON.stringify(args.map(String)));

let state = 7; // the same numbers each time
const draw = (n) => (state = (state * 48271) % 2147483647) % n;
const pick = (list) => list[draw(list.length)];

const fixed = [0, -0, 0.5, 1.5, 2.5, -2.5, 1.005, 0.0005, 0.00049999, 999.9995, 999999.9999, 1e21, 1.2345e25, 5e-324, 1.7976931348623157e308, 1e-7, -0.0001, NaN, Infinity, -Infinity, 123456789.5, 0.1 + 0.2];
const random = Array.from({ length: 400 }, () => (draw(2) ? 1 : -1) * (draw(1e9) / 10 ** draw(12)) * 10 ** draw(8));
const options = [undefined, {}, { maximumFractionDigits: 0 }, { maximumFractionDigits: 1 }, { minimumFractionDigits: 2 }, { minimumFractionDigits: 2, maximumFractionDigits: 2 }, { minimumFractionDigits: 5 },
  { useGrouping: false }, { style: "percent" }, { style: "percent", maximumFractionDigits: 1 },
  ...["USD", "EUR", "GBP", "JPY", "INR", "CNY", "KRW", "CAD", "AUD", "MXN", "BRL"].flatMap((currency) => [{ style: "currency", currency }, { style: "currency", currency, maximumFractionDigits: 0 }, { style: "currency", currency, minimumFractionDigits: 3 }])];
for (const value of [...fixed, ...random]) for (const option of options) right(value, "toLocaleString", pick(["en-US", "en", ["en-US"]]), option);
for (const value of [0n, 5n, -1234567890123456789012345n]) right(value, "toLocaleString", "en-US");
right([1234.5, 2, null, undefined, [3000]], "toLocaleString", "en-US", { minimumFractionDigits: 1 });
for (let i = 0; i < 200; i++) {
  const at = new Date(draw(2e9) * 2000 - 5e11);
  for (const method of ["toLocaleString", "toLocaleDateString", "toLocaleTimeString"]) right(at, method, "en-US", { timeZone: "UTC" });
}
for (const args of [[1, "toLocaleString", "de-DE"], [1, "toLocaleString", "en-US", { style: "unit", unit: "liter" }], [1, "toLocaleString", "en-US", { notation: "compact" }],
  [1, "toLocaleString", "en-US", { style: "currency", currency: "CHF" }], [1, "toLocaleString", "en-US", { style: "currency" }], [1, "toLocaleString", "en-US", { minimumFractionDigits: 3, maximumFractionDigits: 1 }],
  [1, "toLocaleString", "en-US", { maximumSignificantDigits: 2 }], [1, "toLocaleString", "en-US", { minimumIntegerDigits: 3 }], [1, "toLocaleString", "en-US", { signDisplay: "always" }],
  [new Date(0), "toLocaleDateString", "en-US", { weekday: "long" }], [new Date(0), "toLocaleString", "en-US", { timeZone: "Europe/Berlin" }], [new Date(0), "toLocaleTimeString", "en-GB"],
  ["a", "localeCompare", "ж"], ["a", "localeCompare", "b", "sv"], ["a", "localeCompare", "b", "en", { caseFirst: "upper" }], ["I", "toLocaleLowerCase", "tr"]]) refused(...args);

const letters = [..."aAbBzZ09 _-,.!?'()[]{}@*/&#%+<=>|~$\t\néèêëÉàâäåçñõÿíšČ"];
for (let i = 0; i < 20000; i++) {
  const [a, b] = [0, 0].map(() => Array.from({ length: draw(5) }, () => pick(letters)).join(""));
  for (const option of [undefined, { numeric: true }, { sensitivity: "base" }, { sensitivity: "accent" }]) right(a, "localeCompare", b, "en-US", option);
}
for (const [a, b] of [["file10", "file9"], ["a007b", "a7b"], ["1.10", "1.9"], ["v2", "v10"]]) right(a, "localeCompare", b, undefined, { numeric: true });
right("ä", "toLocaleUpperCase", "en-US");
