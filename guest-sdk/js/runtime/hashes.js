// SHA-1 and SHA-2, and what is made of them: HMAC, HKDF and PBKDF2. Their inner
// loops are in hash.wat.

import { compress, stretch } from "./host.js";

// hashes has the lengths of block and hash in bytes, and the state to begin with.
export const hashes = {
  "SHA-1": { block: 64, size: 20, start: "67452301efcdab8998badcfe10325476c3d2e1f0" },
  "SHA-256": { block: 64, size: 32, start: "6a09e667bb67ae853c6ef372a54ff53a510e527f9b05688c1f83d9ab5be0cd19" },
  "SHA-384": { block: 128, size: 48, start: "cbbb9d5dc1059ed8629a292a367cd5079159015a3070dd17152fecd8f70e5939"
    + "67332667ffc00b318eb44a8768581511db0c2e0d64f98fa747b5481dbefa4fa4" },
  "SHA-512": { block: 128, size: 64, start: "6a09e667f3bcc908bb67ae8584caa73b3c6ef372fe94f82ba54ff53a5f1d36f1"
    + "510e527fade682d19b05688c2b3e6c1f1f83d9abfb41bd6b5be0cd19137e2179" },
};

const start = (name) => Uint8Array.fromHex(hashes[name].start);

export const hash = (name, ...parts) => finish(name, start(name), 0, parts);

// finish returns the hash of the parts, behind as many bytes as the state has
// taken in before.
function finish(name, state, before, parts) {
  const blocks = pad(name, before, parts), last = state.slice();
  compress(last.buffer, blocks.buffer);
  return last.slice(0, hashes[name].size);
}

// pad returns the whole blocks that the parts end in.
function pad(name, before, parts) {
  const { block } = hashes[name], length = lengthOf(parts);
  const blocks = join(parts, Math.ceil((length + 1 + block / 8) / block) * block);
  blocks[length] = 0x80;
  new DataView(blocks.buffer).setBigUint64(blocks.length - 8, BigInt(before + length) * 8n);
  return blocks;
}

const lengthOf = (parts) => parts.reduce((sum, part) => sum + part.length, 0);

function join(parts, length = lengthOf(parts)) {
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

// keyed returns the two states that HMAC begins with.
function keyed(name, key) {
  const { block } = hashes[name];
  const words = new Uint32Array(block / 4);
  new Uint8Array(words.buffer).set(key.length > block ? hash(name, key) : key);
  return [0x36363636, 0x5c5c5c5c].map((mask) => {
    const state = start(name);
    compress(state.buffer, words.map((word) => word ^ mask).buffer);
    return state;
  });
}

// hmac returns the function that signs with a key.
export function hmac(name, key) {
  const { block } = hashes[name], [inner, outer] = keyed(name, key);
  return (...parts) => finish(name, outer, block, [finish(name, inner, block, parts)]);
}

// hkdf is RFC 5869.
export function hkdf({ hash: name, salt, info }, secret, length) {
  const sign = hmac(name, hmac(name, salt)(secret));
  let last = new Uint8Array(0);
  return fill(length, hashes[name].size, (i) => (last = sign(last, info, new Uint8Array([i]))));
}

// pbkdf2 is that of RFC 8018.
export function pbkdf2({ hash: name, salt, iterations }, secret, length) {
  const { block, size } = hashes[name], sign = hmac(name, secret), [inner, outer] = keyed(name, secret);
  const lengths = new Uint8Array(new Uint32Array([inner.length, size]).buffer);
  return fill(length, size, (i) => {
    const first = sign(salt, new Uint8Array([i >>> 24, i >>> 16, i >>> 8, i]));
    if (iterations === 1) return first;
    const before = [lengths, inner, outer, inner];
    const area = join([...before, first, pad(name, block, [first])]);
    stretch(area.buffer, iterations - 1);
    return area.subarray(lengthOf(before)).subarray(0, size);
  });
}

// fill returns so many bytes, of pieces that are counted from 1.
function fill(length, size, piece) {
  const bytes = new Uint8Array(length);
  for (let at = 0, i = 1; at < length; at += size, i++) bytes.set(piece(i).subarray(0, length - at), at);
  return bytes;
}
