// The imports of adapter.wat, and when they may be called.

const call = globalThis.host;
delete globalThis.host;

// What host() can be asked for: the numbers are those of adapter.wat.
const NOW = 0, RANDOM = 1, HTTP = 2, PRINT = 3, ENTROPY = 4, SLEEP = 5, ENCODE = 6, DECODE = 7, COMPRESS = 8, STRETCH = 9, FILE = 10;

const host = (what, a, b) => call(what, a, b);
export const nothing = new ArrayBuffer(0);

// Start-up code runs once, and each call begins with a copy of what it left: a
// clock or a random number would be the same in all of them.
let calling = false;
export const start = () => { calling = true; };
export const started = () => calling;
export const guard = (what) => {
  if (!calling) throw new Error(`${what} is not there while a tool starts up: move it into execute`);
};

// A module has only the imports that its source names, by their names in
// starling:v1. Those for files are one, with the name fs.
let doors = [];
export const setDoors = (list) => { doors = list; };
const door = (name, what) => {
  guard(what);
  if (!doors.includes(name)) throw new Error(`the module was built without ${name}, as its source does not name it`);
};

export const now = () => (door("now", "the clock"), host(NOW));
export const random = () => (door("random", "randomness"), BigInt.asUintN(64, host(RANDOM)));
export const entropy = (buffer) => (guard("randomness"), host(ENTROPY, buffer));
export const sleep = (nanoseconds) => host(SLEEP, nanoseconds);
let listener = () => {}; // hears what is printed as well
export const listen = (listen) => { listener = listen; };
export const print = (text) => (listener(text), host(PRINT, encode(text)));

// UTF-8. A surrogate without its other half becomes U+FFFD. When memory is short, the adapter gets no bytes of
// the text, and UTF-8 never has fewer than the text has units of UTF-16.
export function encode(text) {
  const buffer = host(ENCODE, text.toWellFormed());
  if (buffer.byteLength < text.length) throw new InternalError("out of memory");
  return buffer;
}
export const decode = (buffer) => host(DECODE, buffer).toWellFormed();

// compress takes whole blocks into the state of a hash, whose length says of which.
export const compress = (state, blocks) => host(COMPRESS, state, blocks);

// stretch is the loop of PBKDF2: hash.wat says what is in the area.
export const stretch = (area, times) => host(STRETCH, area, times);

// firstBuffer is offered for an answer. A larger one costs a second call of the
// import, but no second exchange.
const firstBuffer = 32 << 10;

// http makes one exchange. It returns the status of the import, and the bytes of
// the response, or of the text that says what failed.
export function http(request) {
  door("http", "the network");
  let buffer = new ArrayBuffer(firstBuffer);
  const status = host(HTTP, request, buffer);
  let length = status < 0 ? host(HTTP, nothing, buffer) : status;
  if (length > firstBuffer) {
    buffer = new ArrayBuffer(length);
    length = host(HTTP, nothing, buffer);
  }
  return { status, bytes: buffer.slice(0, Math.max(length, 0)) };
}

// file calls a function of WASI on files: adapter.wat says what is in the numbers and the buffers.
export const openFiles = () => door("fs", "the file system");
export const file = (what, numbers, first, second) => call(FILE, what, numbers, first, second);
