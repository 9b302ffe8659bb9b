// Compares what fetch makes of compressed bodies with what Node makes of them.
import assert from "node:assert";
import { deflateRawSync, deflateSync, gzipSync, constants } from "node:zlib";
import { codings } from "../runtime/inflate.js";

let state = 1;
const random = () => (state = (state * 48271) % 2147483647) & 255;
const bodies = [
  (n) => Buffer.from("hello ".repeat(n)),
  (n) => Buffer.from(Array.from({ length: 3 * n }, random)),
  (n) => Buffer.from(JSON.stringify(Array.from({ length: n }, (_, i) => ({ i, name: `n${(i * 31) % 97}` })))),
];
const undo = (coding, bytes) => Buffer.from(codings[coding](new Uint8Array(bytes)));

for (const level of [0, 1, 9]) for (const body of bodies) for (const n of [0, 1, 100, 5000, 30000]) {
  for (const [coding, compress] of [["gzip", gzipSync], ["deflate", deflateSync], ["deflate", deflateRawSync]]) {
    for (const strategy of [constants.Z_DEFAULT_STRATEGY, constants.Z_FIXED, constants.Z_HUFFMAN_ONLY]) {
      const whole = body(n), bytes = compress(whole, { level, strategy });
      assert(undo(coding, bytes).equals(whole), `${coding} ${level} ${n} ${strategy}`);
      if (coding === "gzip") for (const cut of [bytes.length - 1, bytes.length >> 1, 11]) assert.throws(() => undo(coding, bytes.subarray(0, cut)), TypeError);
    }
  }
}
assert.equal(String(undo("gzip", Buffer.concat([gzipSync("a"), gzipSync("b")]))), "ab");

// Damage is an error, and never an endless loop or another error.
for (let i = 0; i < 5000; i++) {
  const bytes = deflateRawSync(`hello hello hello ${i}`);
  bytes[i % bytes.length] ^= 1 << (i % 8);
  try {
    undo("deflate", bytes);
  } catch (error) {
    assert(error instanceof TypeError, String(error));
  }
}
