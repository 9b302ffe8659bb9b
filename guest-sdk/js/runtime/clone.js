// structuredClone, of what a tool may have. Nothing is transferred: it is copied.

const errors = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
const refuse = (value) => { throw new DOMException(`${String(value)} could not be cloned.`, "DataCloneError"); };

export function structuredClone(value) {
  const copies = new Map(); // of the objects that were met, some of which may be in circles

  const remember = (value, copy) => {
    copies.set(value, copy);
    return copy;
  };
  const fill = (value, copy) => {
    for (const name of Object.keys(value)) copy[name] = clone(value[name]);
    return copy;
  };

  function clone(value) {
    if (typeof value === "symbol" || typeof value === "function") refuse(value);
    if (typeof value !== "object" || value === null) return value;
    return copies.get(value) ?? copyOf(value);
  }

  function copyOf(value) {
    const kind = Object.prototype.toString.call(value).slice(8, -1);
    if (Array.isArray(value)) return fill(value, remember(value, new Array(value.length)));
    if (value instanceof Date) return remember(value, new Date(value.getTime()));
    if (value instanceof RegExp) return remember(value, new RegExp(value.source, value.flags));
    if (value instanceof ArrayBuffer) return remember(value, value.slice());
    if (ArrayBuffer.isView(value)) return remember(value, new value.constructor(clone(value.buffer), value.byteOffset, value.length ?? value.byteLength));
    if (value instanceof Map) {
      const copy = remember(value, new Map());
      for (const [key, item] of value) copy.set(clone(key), clone(item));
      return copy;
    }
    if (value instanceof Set) {
      const copy = remember(value, new Set());
      for (const item of value) copy.add(clone(item));
      return copy;
    }
    if (value instanceof Error) return copyError(value);
    if (["Boolean", "Number", "String", "BigInt"].includes(kind)) return remember(value, Object(value.valueOf()));
    if (["Promise", "WeakMap", "WeakSet", "WeakRef", "Generator", "CryptoKey"].includes(kind)) refuse(`#<${kind}>`);
    return fill(value, remember(value, {}));
  }

  function copyError(error) {
    const copy = remember(error, new (errors[error.name] ?? Error)());
    for (const name of ["stack", "message", "cause"]) {
      if (Object.hasOwn(error, name)) Object.defineProperty(copy, name, { value: clone(error[name]), writable: true, configurable: true });
    }
    return copy;
  }

  return clone(value);
}
