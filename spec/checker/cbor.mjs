// CBOR in core deterministic encoding: event.md, section 2.
//
// | CBOR                          | here                                          |
// |-------------------------------|-----------------------------------------------|
// | integer, big integer          | BigInt                                        |
// | float                         | Number                                        |
// | text, byte string             | string, Buffer                                |
// | array                         | Array                                         |
// | map with text keys            | Map                                           |
// | any other map                 | Pairs                                         |
// | false, true, null             | the same                                      |
// | another tag, another simple value, a big integer of more than 1024 digits | Tag, Simple |

import { Buffer } from 'node:buffer'
import { refuse, text } from './bytes.mjs'

export class Pairs { constructor(list) { this.list = list } }
export class Tag { constructor(number, content) { this.number = number; this.content = content } }
export class Simple { constructor(number) { this.number = number } }

export const MAX_DEPTH = 72
// An item is a byte or more, and a value of this program some fifty. This bounds the memory.
const MAX_ITEMS = 4_000_000
// A longer one has more than 1024 decimal digits.
const MAX_BIG_BYTES = 426

/** decode reads one item that fills bytes. */
export function decode(bytes) {
  const reader = new Reader(bytes)
  const value = reader.item(0)
  reader.end()
  return value
}

export class Reader {
  constructor(bytes) {
    this.bytes = bytes
    this.at = 0
    this.items = 0
  }

  fail(at, what) { refuse(`byte ${at}: ${what}`) }

  end() {
    if (this.at !== this.bytes.length) this.fail(this.at, `${this.bytes.length - this.at} bytes after the end of the item`)
  }

  take(size) {
    if (size > this.bytes.length - this.at) this.fail(this.at, 'the item ends early')
    this.at += Number(size)
    return this.bytes.subarray(this.at - Number(size), this.at)
  }

  /** head reads the initial byte and its argument, which must have the shortest form. */
  head() {
    const at = this.at
    const first = this.take(1)[0]
    const major = first >> 5, info = first & 31
    if (info < 24) return { at, major, info, arg: BigInt(info) }
    if (info === 31) this.fail(at, 'indefinite length')
    if (info > 27) this.fail(at, `reserved initial byte 0x${first.toString(16)}`)
    const size = 1 << (info - 24)
    const arg = BigInt('0x' + this.take(size).toString('hex'))
    const least = { 1: 24n, 2: 1n << 8n, 4: 1n << 16n, 8: 1n << 32n }[size]
    if (major !== 7 && arg < least) this.fail(at, `${arg} is not in its shortest form`)
    return { at, major, info, arg }
  }

  /** item reads one item inside of depth arrays, maps and tags. */
  item(depth) {
    if (++this.items > MAX_ITEMS) this.fail(this.at, `more than ${MAX_ITEMS} items, which this program does not read`)
    const { at, major, info, arg } = this.head()
    if (major >= 4 && major <= 6 && depth >= MAX_DEPTH) this.fail(at, `nested deeper than ${MAX_DEPTH}`)
    switch (major) {
      case 0: return arg
      case 1: return -1n - arg
      case 2: return this.take(arg)
      case 3: return this.string(at, arg)
      case 4: return this.array(arg, depth)
      case 5: return this.map(arg, depth)
      case 6: return this.tag(at, arg, depth)
      default: return this.simple(at, info, arg)
    }
  }

  string(at, length) {
    const bytes = this.take(length)
    try {
      return text(bytes)
    } catch {
      return this.fail(at, 'text that is not UTF-8')
    }
  }

  array(count, depth) {
    const list = []
    for (let i = 0n; i < count; i++) list.push(this.item(depth + 1))
    return list
  }

  map(count, depth) {
    const list = []
    let before, allText = true
    for (let i = 0n; i < count; i++) {
      const at = this.at
      const key = this.item(depth + 1)
      const encoded = this.bytes.subarray(at, this.at)
      const order = before === undefined ? -1 : Buffer.compare(before, encoded)
      if (order === 0) this.fail(at, 'map key appears twice')
      if (order > 0) this.fail(at, 'map key is out of order')
      before = encoded
      allText &&= typeof key === 'string'
      list.push([key, this.item(depth + 1)])
    }
    return allText ? new Map(list) : new Pairs(list)
  }

  tag(at, number, depth) {
    const inner = this.bytes[this.at]
    const content = this.item(depth + 1)
    if (number === 2n || number === 3n) {
      if (!Buffer.isBuffer(content)) this.fail(at + 1, 'a big integer must be a byte string')
      if (content.length < 9 || content[0] === 0) this.fail(at, 'a big integer that has a shorter form')
      if (content.length > MAX_BIG_BYTES) return new Tag(number, content)
      const n = BigInt('0x' + content.toString('hex'))
      const value = number === 2n ? n : -1n - n
      return value.toString().replace('-', '').length > 1024 ? new Tag(number, content) : value
    }
    if (number === 0n && typeof content !== 'string') this.fail(at + 1, 'tag 0 is for text')
    const numeric = inner >> 5 < 2 || (inner >= 0xf9 && inner <= 0xfb)
    if (number === 1n && !numeric) this.fail(at + 1, 'tag 1 is for numbers')
    return new Tag(number, content)
  }

  simple(at, info, arg) {
    if (info < 24) return info === 20 ? false : info === 21 ? true : info === 22 ? null : new Simple(info)
    if (info === 24) {
      if (arg < 32n) this.fail(at, `simple value ${arg} takes one byte`)
      return new Simple(Number(arg))
    }
    const bytes = this.bytes.subarray(at, this.at)
    const value = info === 25 ? half(Number(arg)) : info === 26 ? bytes.readFloatBE(1) : bytes.readDoubleBE(1)
    if (!encodeFloat(value).equals(bytes)) this.fail(at, 'the float is not in its shortest form')
    return value
  }
}

/** half is the value of a float of 16 bits. */
function half(bits) {
  const sign = bits >> 15 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023
  if (exponent === 31) return fraction ? NaN : sign * Infinity
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25))
}

/** encodeFloat writes a float in the shortest of the three widths that holds it. */
function encodeFloat(value) {
  if (Number.isNaN(value)) return Buffer.from('f97e00', 'hex')
  const out = Buffer.alloc(9)
  if (!Object.is(Math.fround(value), value)) {
    out[0] = 0xfb
    out.writeDoubleBE(value, 1)
    return out
  }
  out.writeFloatBE(value, 1)
  // The bits of the 32-bit float say what a half float would have to be.
  const bits = out.readUInt32BE(1)
  const sign = (bits >>> 16) & 0x8000, exponent = ((bits >>> 23) & 255) - 127
  const magnitude = Math.abs(value)
  const candidate = magnitude === Infinity ? 0x7c00
    : exponent < -14 ? Math.floor(magnitude * 2 ** 24)
    : exponent > 15 ? 0
    : ((exponent + 15) << 10) | ((bits >>> 13) & 1023)
  if (Object.is(half(sign | candidate), value)) {
    out[0] = 0xf9
    out.writeUInt16BE(sign | candidate, 1)
    return out.subarray(0, 3)
  }
  out[0] = 0xfa
  return out.subarray(0, 5)
}

function encodeHead(major, n) {
  const size = n < 24n ? 0 : n < 1n << 8n ? 1 : n < 1n << 16n ? 2 : n < 1n << 32n ? 4 : 8
  if (size === 0) return Buffer.from([(major << 5) | Number(n)])
  return Buffer.from(((major << 5) | (24 + Math.log2(size))).toString(16) + n.toString(16).padStart(2 * size, '0'), 'hex')
}

/** encode is the inverse of decode. It sorts the keys of a map. */
export function encode(value) {
  if (value === null) return Buffer.from([0xf6])
  if (typeof value === 'boolean') return Buffer.from([value ? 0xf5 : 0xf4])
  if (typeof value === 'number') return encodeFloat(value)
  if (typeof value === 'bigint') {
    const n = value < 0n ? -1n - value : value
    if (n < 1n << 64n) return encodeHead(value < 0n ? 1 : 0, n)
    const digits = n.toString(16)
    const bytes = Buffer.from(digits.length % 2 ? '0' + digits : digits, 'hex')
    return Buffer.concat([Buffer.from([value < 0n ? 0xc3 : 0xc2]), encode(bytes)])
  }
  if (typeof value === 'string' || Buffer.isBuffer(value)) {
    const bytes = Buffer.from(value)
    return Buffer.concat([encodeHead(typeof value === 'string' ? 3 : 2, BigInt(bytes.length)), bytes])
  }
  if (Array.isArray(value)) return Buffer.concat([encodeHead(4, BigInt(value.length)), ...value.map(encode)])
  if (value instanceof Tag) return Buffer.concat([encodeHead(6, value.number), encode(value.content)])
  if (value instanceof Simple) return Buffer.from(value.number < 24 ? [0xe0 | value.number] : [0xf8, value.number])
  const pairs = (value instanceof Map ? [...value] : value.list).map(([k, v]) => [encode(k), encode(v)])
  pairs.sort((a, b) => Buffer.compare(a[0], b[0]))
  return Buffer.concat([encodeHead(5, BigInt(pairs.length)), ...pairs.flat()])
}
