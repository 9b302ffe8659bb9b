// JSON as a tool reads and writes it. JavaScript's own rounds integers beyond 2^53: here
// they are BigInts, read and written with all of their digits. Text cut inside a character
// is handed over with U+FFFD in its place, because no host takes half of one.

const { isRawJSON, parse, stringify, rawJSON } = JSON; // those of a program may be others

const exact = (value, source) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? BigInt(source) : value;

// long reports whether a text has 16 digits in a row, one of which is at each 16th place.
function long(text, from = 0, to = text.length) {
  for (let i = from + 15; i < to; i += 16) {
    const code = text.charCodeAt(i);
    if (code >= 48 && code <= 57 && /\d{16}/.test(text.slice(i - 15, i + 16))) return true;
  }
}

export function read(text, reviver) {
  text = `${text}`;
  return long(text) ? exactly(text, reviver) : parse(text, reviver);
}

/**
 * readCall reads the envelope of a call. It passes over the ids, which have no numbers: they are other
 * ones in each run, and its fuel must not depend on them.
 */
export function readCall(text) {
  const call = parse(text), { run_id, call_id } = call.context;
  const ids = `"run_id":"${run_id}","call_id":"${call_id}"`, at = text.indexOf(ids);
  return long(text, 0, at < 0 ? text.length : at) || at >= 0 && long(text, at + ids.length) ? exactly(text) : call;
}

function exactly(text, reviver) {
  const revive = typeof reviver === "function" ? reviver : (_, value) => value;
  return parse(text, function (key, value, context) { return revive.call(this, key, exact(value, context.source), context); });
}

// write returns the JSON of a value, or nothing if it has none.
export function write(value) {
  const text = stringify(value);
  return text?.includes("\\ud") ? text.replace(/\\(?:u(d[89a-f]..)|.)/g, (escape, half) => (half ? "\ufffd" : escape)) : text;
}

export const digits = (integer) => rawJSON(String(integer));

// simple reports whether JSON has all of a value, which is not deep. It costs much less than plain.
export function simple(value, depth = 32) {
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || value === null) return typeof value !== "function" && typeof value !== "symbol";
  if (depth === 0) return false;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) if (!simple(value[i], depth - 1)) return false;
    return true;
  }
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null || typeof value.then === "function" || typeof value.toJSON === "function") return false;
  for (const name of Object.keys(value)) if (!simple(value[name], depth - 1)) return false;
  return true;
}

/**
 * plain resolves to what JSON has of a value: promises in it are awaited, Maps with text keys become
 * objects, other Maps, Sets and typed arrays lists, and errors their name, message and members. What
 * JSON would lose without a word is an error that says where it is. As in JSON, a member that is
 * undefined is left out, and null in a list.
 */
export async function plain(value, path) {
  if (simple(value)) return value;
  const root = {}, promises = [], seen = new Set();
  const jobs = [{ value, path, hold: root, key: "value" }];
  const put = ({ hold, key }, value) => Object.defineProperty(hold, key, { value, writable: true, enumerable: true, configurable: true });
  const lost = ({ path }, what) => { throw new Error(`${path} is ${what}`); };
  const at = (path, key) => (typeof key === "number" ? `${path}[${key}]` : /^[\p{L}_$][\p{L}\p{N}_$]*$/u.test(key) ? `${path}.${key}` : `${path}[${stringify(key)}]`);

  while (jobs.length > 0 || promises.length > 0) {
    if (jobs.length === 0) {
      jobs.push(...(await Promise.all(promises.splice(0))).reverse());
      continue;
    }
    const job = jobs.pop(), { path, key } = job;
    let { value } = job;
    if (typeof value === "function") lost(job, `a function${value.name && ` (${value.name})`}, which JSON does not have: call it`);
    if (typeof value === "symbol") lost(job, `${String(value)}, which JSON does not have`);
    if (typeof value === "number" && !Number.isFinite(value)) lost(job, `${value}, which JSON does not have: return null or a text`);
    if (typeof value !== "object" || value === null) {
      put(job, value);
      continue;
    }
    for (let above = seen.has(value) ? job.above : undefined; above; above = above.above) {
      if (above.value === value) lost(job, `${above.path} itself, a circular reference: not JSON`);
    }
    seen.add(value);
    if (typeof value.then === "function") {
      promises.push(Promise.resolve(value).then((value) => ({ ...job, value })));
      continue;
    }
    if (value instanceof Date && isNaN(value)) lost(job, "an invalid Date");
    if (typeof value.toJSON === "function") {
      const shown = value.toJSON(key);
      if (shown === value || typeof shown !== "object" || shown === null || isRawJSON?.(shown)) put(job, shown);
      else jobs.push({ ...job, value: shown });
      continue;
    }
    if (value instanceof Number || value instanceof String || value instanceof Boolean || value instanceof BigInt) {
      jobs.push({ ...job, value: value.valueOf() });
      continue;
    }
    const holder = (made, entries) => {
      put(job, made);
      for (const [key, value] of entries.reverse()) jobs.push({ value, path: at(path, key), hold: made, key, above: job });
    };
    if (value instanceof Map) {
      const entries = [...value];
      if (entries.every(([key]) => typeof key === "string")) holder({}, entries);
      else holder([], [...entries.entries()]);
    } else if (Array.isArray(value) || value instanceof Set || ArrayBuffer.isView(value) && !(value instanceof DataView)) {
      holder([], [...[...value].entries()]);
    } else if (value instanceof Error) {
      const { name, message, cause, errors } = value;
      holder({}, Object.entries({ name, message, ...value, ...(cause !== undefined && { cause }), ...(Array.isArray(errors) && { errors }) }));
    } else {
      const entries = Object.entries(value), kind = value.constructor?.name?.replace(/^_/, "") || Object.prototype.toString.call(value).slice(8, -1);
      const ordinary = [null, Object.prototype].includes(Object.getPrototypeOf(value)) && Object.prototype.toString.call(value) === "[object Object]";
      if (value instanceof Response || value instanceof Request) lost(job, `a ${kind}, whose body is not read: return await its json() or text()`);
      if (!ordinary && entries.length === 0) lost(job, `a ${kind}, of which JSON has nothing: return what is in it`);
      holder({}, entries);
    }
  }
  return root.value;
}
