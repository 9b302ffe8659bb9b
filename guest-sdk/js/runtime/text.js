// TextEncoder and TextDecoder, for UTF-8 alone.

import { decode, encode } from "./host.js";

export class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(text = "") { return new Uint8Array(encode(String(text))); }
}

export class TextDecoder {
  #fatal;
  #keepMark;

  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    if (!/^utf-?8$/i.test(label)) throw new RangeError(`TextDecoder knows utf-8, and not ${label}`);
    this.#fatal = fatal;
    this.#keepMark = ignoreBOM;
  }

  get encoding() { return "utf-8"; }

  decode(source = new ArrayBuffer(0)) {
    const buffer = toBuffer(source);
    const text = decode(buffer);
    if (this.#fatal && text.includes("\uFFFD") && !same(encode(text), buffer)) {
      throw new TypeError("the bytes are not UTF-8");
    }
    return !this.#keepMark && text.startsWith("\uFEFF") ? text.slice(1) : text;
  }
}

// toBuffer returns the bytes of a buffer, or of a view of one.
export const toBuffer = (source) => ArrayBuffer.isView(source)
  ? source.buffer.slice(source.byteOffset, source.byteOffset + source.byteLength)
  : source;

function same(a, b) {
  const x = new Uint8Array(a), y = new Uint8Array(b);
  return x.length === y.length && x.every((byte, i) => byte === y[i]);
}
