// JSON: the strict reader and the canonical form of event.md, section 3, and the form in
// which an export shows a payload, section 11. Values are those of cbor.mjs.

import { Buffer } from 'node:buffer'
import { Pairs, Simple, Tag } from './cbor.mjs'
import { quote, refuse, text } from './bytes.mjs'

const MAX_DEPTH = 64
const NUMBER = /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y
const PLAIN = /[^"\\\u0000-\u001f]*/y
const ESCAPES = { '"': '"', '\\': '\\', '/': '/', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' }

/** readJSON reads one document of UTF-8. It refuses keys that appear twice. */
export function readJSON(bytes) {
  const source = text(bytes)
  let at = 0
  const fail = (what) => refuse(`character ${at}: ${what}`)

  const space = () => { while (at < source.length && ' \t\r\n'.includes(source[at])) at++ }
  const take = (pattern) => {
    pattern.lastIndex = at
    const found = pattern.exec(source)?.[0] ?? fail('expected a value')
    at += found.length
    return found
  }
  const next = (wanted) => source[at] === wanted ? at++ : fail(`expected ${quote(wanted)}`)

  function string() {
    next('"')
    let out = ''
    for (;;) {
      out += take(PLAIN)
      if (source[at] === '"') { at++; break }
      if (source[at] !== '\\') fail('a control character in a string, or the end of the document')
      const escape = source[at + 1]
      if (escape === 'u') {
        const digits = source.slice(at + 2, at + 6)
        if (!/^[0-9a-fA-F]{4}$/.test(digits)) fail('incomplete escape')
        out += String.fromCharCode(parseInt(digits, 16))
        at += 6
      } else {
        out += Object.hasOwn(ESCAPES, escape ?? '') ? ESCAPES[escape] : fail('unknown escape')
        at += 2
      }
    }
    return out.isWellFormed() ? out : fail('half of a surrogate pair')
  }

  function number() {
    const digits = take(NUMBER)
    if (/^-?[0-9]+$/.test(digits)) return digits.length - (digits[0] === '-') > 1024 ? fail('an integer of more than 1024 digits') : BigInt(digits)
    const value = Number(digits)
    return Number.isFinite(value) ? value : fail('a number outside the range of a 64-bit float')
  }

  function list(depth, close, member) {
    at++
    if (depth >= MAX_DEPTH) fail(`nested deeper than ${MAX_DEPTH}`)
    space()
    if (source[at] === close) return void at++
    for (;;) {
      space()
      member()
      space()
      if (source[at] === close) return void at++
      next(',')
    }
  }

  function value(depth) {
    space()
    switch (source[at]) {
      case '{': {
        const out = new Map()
        list(depth, '}', () => {
          const key = string()
          if (out.has(key)) fail(`key ${quote(key)} appears twice`)
          space()
          next(':')
          out.set(key, value(depth + 1))
        })
        return out
      }
      case '[': {
        const out = []
        list(depth, ']', () => out.push(value(depth + 1)))
        return out
      }
      case '"': return string()
      default:
    }
    for (const [word, constant] of [['null', null], ['true', true], ['false', false]]) {
      if (source.startsWith(word, at)) { at += word.length; return constant }
    }
    return number()
  }

  const out = value(0)
  space()
  if (at !== source.length) fail('something after the end of the document')
  return out
}

/** canonicalJSON writes a value as section 3 says. */
export function canonicalJSON(value) {
  return write(value, (s) => '"' + s.replace(/["\\\u0000-\u001f]/g, escape) + '"', (what) => refuse(`no JSON for ${what}`))
}

/** renderJSON writes a value as an export shows it: section 11. */
export function renderJSON(value) {
  return write(value, showText, (_, shown) => shown())
}

// Other is called for what JSON does not have.
function write(value, string, other) {
  const again = (v) => write(v, string, other)
  if (value === null || typeof value === 'boolean') return String(value)
  if (typeof value === 'bigint') return value.toString()
  if (typeof value === 'string') return string(value)
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) return other('a float that is not finite', () => `{"$float":"${value}"}`)
    const digits = Object.is(value, -0) ? '-0' : String(value)
    return /[.e]/.test(digits) ? digits : digits + '.0'
  }
  if (Array.isArray(value)) return '[' + value.map(again).join(',') + ']'
  if (value instanceof Map) {
    const members = [...value].map(([k, v]) => [Buffer.from(k), string(k) + ':' + again(v)])
    return '{' + members.sort((a, b) => Buffer.compare(a[0], b[0])).map((m) => m[1]).join(',') + '}'
  }
  if (Buffer.isBuffer(value)) return other('a byte string', () => showBytes(value))
  if (value instanceof Pairs) return other('keys that are not text', () => `{"$map":[${value.list.map(([k, v]) => `[${again(k)},${again(v)}]`).join(',')}]}`)
  if (value instanceof Tag) return other('a tag', () => `{"$tag":[${value.number},${again(value.content)}]}`)
  if (value instanceof Simple) return other('a simple value', () => `{"$simple":${value.number}}`)
  return refuse('no JSON for this')
}

const SHORT = { '"': '\\"', '\\': '\\\\', '\b': '\\b', '\t': '\\t', '\n': '\\n', '\f': '\\f', '\r': '\\r' }

function escape(c) {
  return SHORT[c] ?? [...Array(c.length).keys()].map((i) => '\\u' + c.charCodeAt(i).toString(16).padStart(4, '0')).join('')
}

/** showText writes a text as a JSON string whose characters are all printable. */
export function showText(s) {
  return '"' + s.replace(UNPRINTABLE, escape).replace(LATER, escape) + '"'
}

function showBytes(bytes) {
  let s
  try { s = text(bytes) } catch { s = '' }
  const shown = s.replace(/[\t\n\r"\\]/g, '')
  const printable = s !== '' && shown.search(UNPRINTABLE) < 0 && shown.search(LATER) < 0
  return printable ? `{"$text":${showText(s)}}` : `"h'${bytes.toString('hex')}'"`
}

// Printable are letters, marks, numbers, punctuation, symbols and the space, by Unicode 15.0.
const UNPRINTABLE = /["\\]|[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu

// The characters that Unicode 15.1 to 17.0 made printable. This program may run with their tables.
const LATER = new RegExp('[' + (
  '88f 897 c5c cdc 1acf-1add 1ae0-1aeb 1b4e-1b4f 1b7f 1c89-1c8a 20c1 2427-2429 2b96 2ffc-2fff 31e4-31e5 31ef ' +
  'a7cb-a7cf a7d2 a7d4 a7da-a7dc a7f1 fbc3-fbd2 fd90-fd91 fdc8-fdce 105c0-105f3 10940-10959 10d40-10d65 ' +
  '10d69-10d85 10d8e-10d8f 10ec2-10ec7 10ed0-10ed8 10efa-10efc 11380-11389 1138b 1138e 11390-113b5 113b7-113c0 ' +
  '113c2 113c5 113c7-113ca 113cc-113d5 113d7-113d8 113e1-113e2 116d0-116e3 11b60-11b67 11bc0-11be1 11bf0-11bf9 ' +
  '11db0-11ddb 11de0-11de9 11f5a 13460-143fa 16100-16139 16d40-16d79 16ea0-16eb8 16ebb-16ed3 16ff2-16ff6 ' +
  '187f8-187ff 18cff 18d09-18d1e 18d80-18df2 1cc00-1ccfc 1cd00-1ceb3 1ceba-1ced0 1cee0-1cef0 1e5d0-1e5fa 1e5ff ' +
  '1e6c0-1e6de 1e6e0-1e6f5 1e6fe-1e6ff 1f6d8 1f777-1f77a 1f8b2-1f8bb 1f8c0-1f8c1 1f8d0-1f8d8 1fa54-1fa57 ' +
  '1fa89-1fa8a 1fa8e-1fa8f 1fabe 1fac6 1fac8 1facd 1fadc 1fadf 1fae9-1faea 1faef 1fbcb-1fbef 1fbfa 2b73a-2b73f ' +
  '2cea2-2cead 2ebf0-2ee5d 323b0-33479').replace(/[0-9a-f]+/g, '\\u{$&}').replaceAll(' ', '') + ']', 'gu')
