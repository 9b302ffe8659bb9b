// Streams, as far as DecompressionStream, Blob and the body of a response need them: what is
// written is kept until it is read.

import { codings, inflate } from "./inflate.js";
import { TextDecoder, TextEncoder, toBuffer } from "./text.js";

export class ReadableStream {
  #chunks = [];
  #ended = false;
  #failed; // [error]
  #waiting = []; // functions, of readers that wait for a chunk
  #pull;
  locked = false;

  constructor({ start, pull } = {}) {
    const wake = () => this.#waiting.splice(0).forEach((go) => go());
    const controller = {
      desiredSize: 1,
      enqueue: (chunk) => { this.#chunks.push(chunk); wake(); },
      close: () => { this.#ended = true; wake(); },
      error: (error) => { this.#failed ??= [error]; wake(); },
    };
    this.#pull = pull && (() => pull(controller));
    start?.(controller);
  }

  async #next() {
    for (;;) {
      if (this.#failed) throw this.#failed[0];
      if (this.#chunks.length > 0) return { done: false, value: this.#chunks.shift() };
      if (this.#ended) return { done: true, value: undefined };
      if (this.#pull) await this.#pull();
      if (this.#chunks.length === 0 && !this.#ended && !this.#failed) await new Promise((go) => this.#waiting.push(go));
    }
  }

  getReader() {
    if (this.locked) throw new TypeError("the stream has a reader already");
    this.locked = true;
    return { read: () => this.#next(), cancel: () => this.cancel(), releaseLock: () => { this.locked = false; } };
  }

  async cancel() {
    this.#chunks = [];
    this.#ended = true;
  }

  async *[Symbol.asyncIterator]() {
    const reader = this.getReader();
    for (let next; !(next = await reader.read()).done;) yield next.value;
  }
  values() { return this[Symbol.asyncIterator](); }

  async pipeTo(target) {
    const writer = target.getWriter();
    try {
      for await (const chunk of this) await writer.write(chunk);
      await writer.close();
    } catch (error) {
      await writer.abort(error);
      throw error;
    }
  }

  pipeThrough({ readable, writable }) {
    this.pipeTo(writable).catch(() => {}); // the reader of the other side gets the error
    return readable;
  }
}

export class WritableStream {
  #sink;
  #last = Promise.resolve(); // the write before
  locked = false;

  constructor(sink = {}) { this.#sink = sink; }

  getWriter() {
    if (this.locked) throw new TypeError("the stream has a writer already");
    this.locked = true;
    const then = (action) => {
      const done = this.#last.then(action);
      this.#last = done.catch(() => {});
      return done;
    };
    return {
      ready: Promise.resolve(), desiredSize: 1,
      write: (chunk) => then(() => this.#sink.write?.(chunk)),
      close: () => then(() => this.#sink.close?.()),
      abort: (reason) => then(() => this.#sink.abort?.(reason)),
      releaseLock: () => { this.locked = false; },
    };
  }
}

export class TransformStream {
  constructor({ transform = (chunk, controller) => controller.enqueue(chunk), flush } = {}) {
    let controller;
    this.readable = new ReadableStream({ start(c) { controller = c; } });
    const guarded = async (action) => {
      try {
        await action();
      } catch (error) {
        controller.error(error);
        throw error;
      }
    };
    this.writable = new WritableStream({
      write: (chunk) => guarded(() => transform(chunk, controller)),
      close: () => guarded(async () => { await flush?.(controller); controller.close(); }),
      abort: (reason) => controller.error(reason),
    });
  }
}

const formats = { gzip: codings.gzip, deflate: (bytes) => inflate(bytes, zlibHead(bytes)).out, "deflate-raw": (bytes) => inflate(bytes, 0).out };

function zlibHead(bytes) {
  if ((bytes[0] & 15) !== 8 || ((bytes[0] << 8) | bytes[1]) % 31 !== 0) throw new TypeError("the data is not in the format deflate (RFC 1950): deflate-raw is RFC 1951");
  return 2;
}

export class DecompressionStream extends TransformStream {
  constructor(format) {
    if (!Object.hasOwn(formats, format)) throw new TypeError(`DecompressionStream knows ${Object.keys(formats).join(", ")}, and not ${format}`);
    const chunks = [];
    super({
      transform(chunk) {
        if (!(chunk instanceof ArrayBuffer || ArrayBuffer.isView(chunk))) throw new TypeError("a chunk is bytes");
        chunks.push(chunk);
      },
      flush(controller) {
        const bytes = formats[format](join(chunks));
        if (bytes.length > 0) controller.enqueue(bytes);
      },
    });
  }
}

// join returns the bytes of chunks, each a buffer or a view.
export function join(chunks) {
  const all = new Uint8Array(chunks.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const chunk of chunks) {
    all.set(new Uint8Array(toBuffer(chunk)), at);
    at += chunk.byteLength;
  }
  return all;
}

export class Blob {
  #bytes;

  constructor(parts = [], { type = "" } = {}) {
    this.#bytes = join([...parts].map((part) => part instanceof Blob ? part.#bytes
      : part instanceof ArrayBuffer || ArrayBuffer.isView(part) ? part : new TextEncoder().encode(String(part))));
    this.type = String(type).toLowerCase();
  }

  get size() { return this.#bytes.length; }
  slice(start, end, type = "") { return new Blob([this.#bytes.slice(start, end)], { type }); }
  async arrayBuffer() { return this.copy().buffer; }
  copy() { return this.#bytes.slice(); }
  async bytes() { return this.copy(); }
  async text() { return new TextDecoder().decode(this.#bytes); }
  stream() { return streamOf(() => this.copy()); }
}

// streamOf returns a stream of the bytes that a function returns when they are wanted.
export const streamOf = (bytes) => new ReadableStream({
  pull(controller) {
    const all = bytes();
    if (all.length > 0) controller.enqueue(all);
    controller.close();
  },
});
