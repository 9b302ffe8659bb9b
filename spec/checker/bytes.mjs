// Bytes and texts: what every other file of the checker needs.

import { Buffer } from 'node:buffer'

/** Refused is thrown for data that the specification does not allow. Its message says where and what. */
export class Refused extends Error {}

export function refuse(message) {
  throw new Refused(message)
}

/** within adds the place to what is refused inside of step. */
export function within(place, step) {
  try {
    return step()
  } catch (err) {
    if (err instanceof Refused) throw new Refused(`${place}: ${err.message}`)
    throw err
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** text decodes UTF-8 and refuses everything else. */
export function text(bytes) {
  try {
    return utf8.decode(bytes)
  } catch {
    return refuse('text that is not UTF-8')
  }
}

/** hex reads lower-case hexadecimal, of a given number of bytes if size is given. */
export function hex(value, size) {
  if (typeof value !== 'string' || !/^([0-9a-f]{2})*$/.test(value)) refuse('not lower-case hexadecimal')
  if (size !== undefined && value.length !== 2 * size) refuse(`${value.length / 2} bytes where ${size} are due`)
  return Buffer.from(value, 'hex')
}

/** base64 reads standard base64 with its padding. There is one spelling for each value. */
export function base64(value) {
  const bytes = Buffer.from(value, 'base64')
  if (bytes.toString('base64') !== value) refuse(`${quote(value)} is not standard base64`)
  return bytes
}

/** decimal reads decimal digits without leading zeros, up to 2^63-1. */
export function decimal(value) {
  if (!/^(0|[1-9][0-9]{0,18})$/.test(value) || BigInt(value) >= 1n << 63n) refuse(`${quote(value)} is not a number in decimal digits`)
  return BigInt(value)
}

/** quote shows a text from outside on one line, in ASCII. */
export function quote(value) {
  const short = value.length > 80 ? value.slice(0, 77) + '...' : value
  return JSON.stringify(short).replace(/[^ -~]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'))
}
