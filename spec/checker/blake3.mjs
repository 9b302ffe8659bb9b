// BLAKE3 with 32 bytes of output, without a key (github.com/BLAKE3-team/BLAKE3-specs).
//
// The input is cut into chunks of 1024 bytes, and a chunk into blocks of 64. Blocks are
// compressed one after another into the chaining value of the chunk. Chunks are the leaves
// of a binary tree whose left subtrees are full.

import { Buffer } from 'node:buffer'

const IV = new Uint32Array([0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19])
const CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8

// Before each round but the first, word i of the message becomes word PERMUTATION[i].
const PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
const SCHEDULE = [[...Array(16).keys()]]
for (let round = 1; round < 7; round++) SCHEDULE.push(PERMUTATION.map((i) => SCHEDULE[round - 1][i]))

// The columns, then the diagonals, of the state of 4 by 4 words.
const MIX = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15], [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]]

const state = new Uint32Array(16)

/** compress returns the chaining value of a block of 16 words. */
function compress(cv, words, counter, length, flags) {
  const v = state
  v.set(cv)
  v.set(IV.subarray(0, 4), 8)
  v[12] = counter
  v[13] = Math.floor(counter / 2 ** 32)
  v[14] = length
  v[15] = flags
  for (let round = 0; round < 7; round++) {
    const order = SCHEDULE[round]
    for (let i = 0; i < 8; i++) {
      const [a, b, c, d] = MIX[i]
      v[a] = v[a] + v[b] + words[order[2 * i]]
      v[d] = rotate(v[d] ^ v[a], 16)
      v[c] = v[c] + v[d]
      v[b] = rotate(v[b] ^ v[c], 12)
      v[a] = v[a] + v[b] + words[order[2 * i + 1]]
      v[d] = rotate(v[d] ^ v[a], 8)
      v[c] = v[c] + v[d]
      v[b] = rotate(v[b] ^ v[c], 7)
    }
  }
  const out = new Uint32Array(8)
  for (let i = 0; i < 8; i++) out[i] = v[i] ^ v[i + 8]
  return out
}

function rotate(word, bits) {
  return (word >>> bits) | (word << (32 - bits))
}

function chunk(bytes, counter, root) {
  let cv = IV
  const words = new Uint32Array(16)
  for (let at = 0; at === 0 || at < bytes.length; at += 64) {
    const block = bytes.subarray(at, at + 64)
    words.fill(0)
    for (let i = 0; i < block.length; i++) words[i >> 2] |= block[i] << (8 * (i & 3))
    const last = at + 64 >= bytes.length
    cv = compress(cv, words, counter, block.length, (at === 0 ? CHUNK_START : 0) | (last ? CHUNK_END | root : 0))
  }
  return cv
}

function parent(left, right, root) {
  const words = new Uint32Array(16)
  words.set(left)
  words.set(right, 8)
  return compress(IV, words, 0, 64, PARENT | root)
}

/** blake3 returns the hash of bytes. */
export function blake3(bytes) {
  const chunks = Math.max(1, Math.ceil(bytes.length / 1024))
  const full = [] // the chaining values of full subtrees, the largest first
  let cv
  for (let i = 0; i < chunks; i++) {
    cv = chunk(bytes.subarray(1024 * i, 1024 * i + 1024), i, chunks === 1 ? ROOT : 0)
    if (i === chunks - 1) break
    // As many subtrees are full now as the number of chunks has factors of two.
    for (let n = i + 1; n % 2 === 0; n /= 2) cv = parent(full.pop(), cv, 0)
    full.push(cv)
  }
  while (full.length > 0) cv = parent(full.pop(), cv, full.length === 0 ? ROOT : 0)
  const out = Buffer.alloc(32)
  for (let i = 0; i < 8; i++) out.writeUInt32LE(cv[i], 4 * i)
  return out
}
