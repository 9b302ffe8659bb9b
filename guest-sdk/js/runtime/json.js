// JSON as a tool reads and writes it. JavaScript's own rounds integers beyond 2^53: here
// they are BigInts, read and written with all of their digits. Text cut inside a character
// is handed over with U+FFFD in its place, because no host takes half of one.

const { parse, stringify, rawJSON } = JSON; // those of a program may be others

const exact = (value, source) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? BigInt(source) : value;

// long reports whether a text has 16 digits in a row, one of which is at each 16th place.
function long(text) {
  for (let i = 15; i < text.length; i += 16) {
    const code = text.charCodeAt(i);
    if (code >= 48 && code <= 57 && /\d{16}/.test(text.slice(i - 15, i + 16))) return true;
  }
}

export function read(text, reviver) {
  text = `${text}`;
  if (!long(text)) return parse(text, reviver);
  const revive = typeof reviver === "function" ? reviver : (_, value) => value;
  return parse(text, function (key, value, context) { return revive.call(this, key, exact(value, context.source), context); });
}

// write returns the JSON of a value, or nothing if it has none.
export function write(value) {
  const text = stringify(value);
  return text?.includes("\\ud") ? text.replace(/\\(?:u(d[89a-f]..)|.)/g, (escape, half) => (half ? "\ufffd" : escape)) : text;
}

export const digits = (integer) => rawJSON(String(integer));
