// TextEncoder for UTF-8, and TextDecoder for that and for what else is met in
// practice: UTF-16LE, and the Latin 1 of the Web, which is Windows-1252.

import { decode, encode } from "./host.js";

export class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(text = "") { return new Uint8Array(encode(String(text))); }

  encodeInto(text, target) {
    let read = 0, written = 0;
    for (const char of String(text)) {
      const bytes = this.encode(char);
      if (written + bytes.length > target.length) break;
      target.set(bytes, written);
      written += bytes.length;
      read += char.length;
    }
    return { read, written };
  }
}

export class TextDecoder {
  #encoding;
  #fatal;
  #keepMark;
  #held = []; // bytes of a stream
  #begun = false; // whether there was text in it, so that there is no mark to come

  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    const known = Object.entries(labels).find(([, names]) => names.test(String(label).trim()));
    if (!known) throw new RangeError(`TextDecoder knows ${Object.keys(labels).join(", ")}, and not ${label}`);
    this.#encoding = known[0];
    this.#fatal = fatal;
    this.#keepMark = ignoreBOM;
  }

  get encoding() { return this.#encoding; }
  get fatal() { return this.#fatal; }
  get ignoreBOM() { return this.#keepMark; }

  // With stream, what the bytes end in and is not whole is held for the next call.
  decode(source = new ArrayBuffer(0), { stream = false } = {}) {
    const begun = this.#begun, buffer = join(this.#held, toBuffer(source));
    const end = buffer.byteLength - (stream ? unfinished[this.#encoding](new Uint8Array(buffer)) : 0);
    this.#held = []; // and a stream ends with what throws
    this.#begun = false;
    const text = this.#decodeWhole(end < buffer.byteLength ? buffer.slice(0, end) : buffer);
    this.#held = new Uint8Array(buffer.slice(end));
    this.#begun = stream && (begun || text !== "");
    return !begun && !this.#keepMark && text.startsWith("\uFEFF") ? text.slice(1) : text;
  }

  #decodeWhole(buffer) {
    if (this.#encoding === "windows-1252") return units(new Uint8Array(buffer), (byte) => upper[byte - 0x80] ?? byte);
    const text = this.#encoding === "utf-8" ? decode(buffer) : this.#decodeWide(buffer);
    if (this.#encoding === "utf-8" && this.#fatal && text.includes("\uFFFD") && !same(encode(text), buffer)) {
      throw new TypeError("the bytes are not UTF-8");
    }
    return text;
  }

  #decodeWide(buffer) {
    const whole = units(new Uint16Array(buffer.slice(0, buffer.byteLength & ~1)));
    const apart = buffer.byteLength % 2 && !/[\uD800-\uDBFF]$/.test(whole); // and not half of a pair's second half
    const text = whole.toWellFormed() + (apart ? "\uFFFD" : "");
    if (this.#fatal && text !== whole) throw new TypeError("the bytes are not UTF-16");
    return text;
  }
}

// labels are the names of the encodings.
const labels = {
  "utf-8": /^(unicode-1-1-)?utf-?8$/i,
  "utf-16le": /^(utf-16(le)?|ucs-2|unicode)$/i,
  "windows-1252": /^(windows-1252|cp1252|x-cp1252|latin1|l1|iso-?8859-?1|iso_8859-1|us-ascii|ascii)$/i,
};

// unfinished returns how many of the last bytes may be the beginning of a letter.
const unfinished = {
  "utf-8": (bytes) => {
    const n = [1, 2, 3].find((n) => (bytes.at(-n) & 0xc0) !== 0x80) ?? 4, lead = bytes.at(-n);
    if (!(lead >= 0xc2 && lead <= 0xf4) || n >= (lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4)) return 0;
    const next = n > 1 ? bytes.at(1 - n) : undefined;
    const low = { 0xe0: 0xa0, 0xf0: 0x90 }[lead] ?? 0x80, high = { 0xed: 0x9f, 0xf4: 0x8f }[lead] ?? 0xbf;
    return next < low || next > high ? 0 : n;
  },
  "utf-16le": (bytes) => {
    const odd = bytes.length % 2, last = bytes.at(-1 - odd);
    return odd + (last >= 0xd8 && last < 0xdc ? 2 : 0);
  },
  "windows-1252": () => 0,
};

// upper is what the bytes 0x80 to 0x9f stand for in Windows-1252.
const upper = [0x20ac, 0x81, 0x201a, 0x192, 0x201e, 0x2026, 0x2020, 0x2021, 0x2c6, 0x2030, 0x160, 0x2039, 0x152, 0x8d, 0x17d, 0x8f,
  0x90, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x2dc, 0x2122, 0x161, 0x203a, 0x153, 0x9d, 0x17e, 0x178];

// units returns the text of code units, a piece at a time, as a call takes only so
// many arguments.
function units(list, unit = (n) => n) {
  let text = "";
  for (let i = 0; i < list.length; i += 4096) text += String.fromCharCode(...Array.from(list.subarray(i, i + 4096), unit));
  return text;
}

// toBuffer returns the bytes of a buffer, or of a view of one.
export const toBuffer = (source) => ArrayBuffer.isView(source)
  ? source.buffer.slice(source.byteOffset, source.byteOffset + source.byteLength)
  : source;

// join returns the buffer with bytes before it.
function join(bytes, buffer) {
  if (bytes.length === 0) return buffer;
  const all = new Uint8Array(bytes.length + buffer.byteLength);
  all.set(bytes);
  all.set(new Uint8Array(buffer), bytes.length);
  return all.buffer;
}

function same(a, b) {
  const x = new Uint8Array(a), y = new Uint8Array(b);
  return x.length === y.length && x.every((byte, i) => byte === y[i]);
}
