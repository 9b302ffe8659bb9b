// crypto.subtle: hashes, HMAC, HKDF and PBKDF2, as Web Cryptography Level 2 says.

import { crypto, define } from "./globals.js";
import { hash, hashes, hkdf, hmac, pbkdf2 } from "./hashes.js";

const fail = (name, message) => { throw new DOMException(message, name); };

// ---- arguments ----

const isBytes = (value) => value instanceof ArrayBuffer || ArrayBuffer.isView(value);

function toBytes(value) {
  if (!isBytes(value)) throw new TypeError("the data is neither an ArrayBuffer nor a view of one");
  return ArrayBuffer.isView(value) ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : new Uint8Array(value);
}

function toUint32(value) {
  const n = Math.trunc(Number(value));
  if (!(n >= 0 && n < 2 ** 32)) throw new TypeError(`${String(value)} is no number of 32 bits`);
  return n;
}

const toHash = (value) => normalize(value, "digest").name;
const optional = (convert) => Object.assign((value) => (value === undefined ? value : convert(value)), { optional: true });

// operations lists the algorithms of each, with their parameters.
const ofHMAC = { hash: toHash, length: optional(toUint32) };
const operations = {
  digest: Object.fromEntries(Object.keys(hashes).map((name) => [name, {}])),
  sign: { HMAC: {} },
  verify: { HMAC: {} },
  generateKey: { HMAC: ofHMAC },
  importKey: { HMAC: ofHMAC, HKDF: {}, PBKDF2: {} },
  deriveBits: {
    HKDF: { hash: toHash, info: toBytes, salt: toBytes },
    PBKDF2: { hash: toHash, iterations: toUint32, salt: toBytes },
  },
};

// normalize returns the parameters of an algorithm, with its name as it is written.
function normalize(algorithm, operation) {
  const given = Object(algorithm) === algorithm ? algorithm : { name: algorithm };
  if (given === algorithm && given.name === undefined) throw new TypeError("the algorithm has no name");
  const known = operations[operation];
  const name = Object.keys(known).find((name) => name === String(given.name).toUpperCase());
  if (!name) fail("NotSupportedError", `crypto.subtle.${operation} has ${Object.keys(known).join(", ")}, and not ${String(given.name)}`);
  const parameters = { name };
  for (const [member, convert] of Object.entries(known[name])) {
    if (given[member] === undefined && !convert.optional) throw new TypeError(`the algorithm ${name} has no ${member}`);
    parameters[member] = convert(given[member]);
  }
  return parameters;
}

const formats = ["raw", "spki", "pkcs8", "jwk"];
const usages = ["encrypt", "decrypt", "sign", "verify", "deriveKey", "deriveBits", "wrapKey", "unwrapKey"];

function toFormat(value) {
  if (!formats.includes(String(value))) throw new TypeError(`${String(value)} is no format of keys`);
  return String(value);
}

// toUsages returns each usage once, in the order of the specification.
function toUsages(values) {
  if (typeof values?.[Symbol.iterator] !== "function") throw new TypeError("the usages of the key are no list");
  const asked = Array.from(values, String);
  const unknown = asked.find((usage) => !usages.includes(usage));
  if (unknown !== undefined) throw new TypeError(`${unknown} is no usage of keys`);
  return usages.filter((usage) => asked.includes(usage));
}

// ---- keys ----

let make; // of a CryptoKey, which nobody else makes
let partsOf; // of one: name, secret, extractable, usages, and of HMAC hash and length

class CryptoKey {
  #parts;
  #algorithm;
  #usages;

  constructor(parts) {
    if (parts?.proof !== make) throw new TypeError("Illegal constructor");
    const { name, hash, length } = this.#parts = parts;
    this.#algorithm = name === "HMAC" ? { name, hash: { name: hash }, length } : { name };
    this.#usages = [...parts.usages];
  }

  get type() { return this.#parts && "secret"; }
  get extractable() { return this.#parts.extractable; }
  get algorithm() { return this.#algorithm; }
  get usages() { return this.#usages; }
  get [Symbol.toStringTag]() { return "CryptoKey"; }

  static {
    make = (parts) => new CryptoKey({ ...parts, proof: make });
    partsOf = (key) => key.#parts;
  }
}

const usesOf = (name) => (name === "HMAC" ? ["sign", "verify"] : ["deriveKey", "deriveBits"]);

function checkUses(name, uses) {
  const wrong = uses.find((use) => !usesOf(name).includes(use));
  if (wrong) fail("SyntaxError", `a key for ${name} is not for ${wrong}`);
}

// newKey returns the key of a secret, which is the caller's own copy.
function newKey({ name, hash, length }, secret, extractable, uses) {
  checkUses(name, uses);
  const bits = secret.length * 8;
  if (name !== "HMAC" && extractable) fail("SyntaxError", `a key for ${name} cannot be extractable`);
  if (name === "HMAC") {
    if (bits === 0) fail("DataError", "the key is empty");
    if (length > bits || length <= bits - 8) fail("DataError", `the key has ${bits} bits, and not ${length}`);
    secret[secret.length - 1] &= 0xff << (bits - (length ?? bits));
  }
  if (uses.length === 0) fail("SyntaxError", "the key is for nothing: its usages are empty");
  return make({ name, hash, length: length ?? bits, secret, extractable: Boolean(extractable), usages: uses });
}

const jwkName = (hash) => hash.replace("SHA-", "HS");

// fromJWK returns the secret of a JSON Web Key, which must allow what is asked.
function fromJWK({ hash }, jwk, extractable, uses) {
  const bad = (member) => fail("DataError", `the JSON Web Key has another ${member}`);
  const { kty, k, alg, use, key_ops: ops, ext } = jwk;
  if (kty !== "oct") bad("kty than oct");
  if (!/^[\w-]*$/.test(k ?? "=")) bad("k than base64url");
  if (alg !== undefined && alg !== jwkName(hash)) bad(`alg than ${jwkName(hash)}`);
  if (use !== undefined && use !== "sig" && uses.length > 0) bad("use than sig");
  if (ops !== undefined && (new Set(ops).size !== ops.length || !uses.every((one) => ops.includes(one)))) bad("key_ops than the usages");
  if (ext === false && extractable) bad("ext than true");
  return decodeJWK(k);
}

function decodeJWK(k) {
  try {
    return Uint8Array.fromBase64(k, { alphabet: "base64url" });
  } catch {
    return fail("DataError", "the k of the JSON Web Key is not base64url");
  }
}

// usable returns the parameters of the algorithm and the parts of the key, if the
// one may be used with the other.
function usable(algorithm, operation, key, use) {
  const parameters = normalize(algorithm, operation), parts = partsOf(key);
  if (parts.name !== parameters.name) fail("InvalidAccessError", `the key is for ${parts.name}, and not for ${parameters.name}`);
  if (!parts.usages.includes(use)) fail("InvalidAccessError", `the usages of the key do not have ${use}`);
  return { parameters, parts };
}

function sign(algorithm, key, use, data) {
  const { hash, secret } = usable(algorithm, use, key, use).parts;
  return hmac(hash, secret)(data);
}

function derive(algorithm, key, use, length) {
  const { parameters, parts } = usable(algorithm, "deriveBits", key, use);
  if (length == null || length % 8) fail("OperationError", "the length is no number of whole bytes");
  if (parameters.iterations === 0) fail("OperationError", "there are no iterations");
  if (parameters.name === "PBKDF2") return pbkdf2(parameters, parts.secret, length / 8);
  if (length / 8 > 255 * hashes[parameters.hash].size) fail("OperationError", `HKDF gives no ${length} bits`);
  return hkdf(parameters, parts.secret, length / 8);
}

// ---- crypto.subtle ----

const defaultLength = ({ hash, length }) => length ?? hashes[hash].block * 8;

const subtle = {
  [Symbol.toStringTag]: "SubtleCrypto",

  async digest(algorithm, data) {
    const bytes = toBytes(data);
    return hash(normalize(algorithm, "digest").name, bytes).buffer;
  },

  async sign(algorithm, key, data) {
    return sign(algorithm, key, "sign", toBytes(data)).buffer;
  },

  // The time does not depend on where the two differ.
  async verify(algorithm, key, signature, data) {
    const given = toBytes(signature);
    const right = sign(algorithm, key, "verify", toBytes(data));
    return given.length === right.length && right.reduce((differ, byte, i) => differ | (byte ^ given[i]), 0) === 0;
  },

  async generateKey(algorithm, extractable, keyUsages) {
    const uses = toUsages(keyUsages), parameters = normalize(algorithm, "generateKey");
    checkUses(parameters.name, uses);
    const length = defaultLength(parameters);
    if (length === 0) fail("OperationError", "the key would be empty");
    const secret = crypto.getRandomValues(new Uint8Array(Math.ceil(length / 8)));
    return newKey({ ...parameters, length }, secret, extractable, uses);
  },

  async importKey(keyFormat, data, algorithm, extractable, keyUsages) {
    const format = toFormat(keyFormat), uses = toUsages(keyUsages), parameters = normalize(algorithm, "importKey");
    if (isBytes(data) === (format === "jwk") || Object(data) !== data) throw new TypeError(`the data is no key in the format ${format}`);
    if (format !== "raw" && (format !== "jwk" || parameters.name !== "HMAC")) {
      fail("NotSupportedError", `crypto.subtle.importKey has raw, of HMAC also jwk, and not ${format}`);
    }
    checkUses(parameters.name, uses);
    const secret = format === "raw" ? toBytes(data).slice() : fromJWK(parameters, data, extractable, uses);
    return newKey(parameters, secret, extractable, uses);
  },

  async exportKey(keyFormat, key) {
    const format = toFormat(keyFormat), { name, hash, secret, extractable, usages } = partsOf(key);
    if (name !== "HMAC") fail("NotSupportedError", `crypto.subtle.exportKey has HMAC, and not ${name}`);
    if (!extractable) fail("InvalidAccessError", "the key is not extractable");
    if (format === "raw") return secret.slice().buffer;
    if (format !== "jwk") fail("NotSupportedError", `crypto.subtle.exportKey has raw and jwk, and not ${format}`);
    const k = secret.toBase64({ alphabet: "base64url", omitPadding: true });
    return { kty: "oct", k, alg: jwkName(hash), key_ops: [...usages], ext: extractable };
  },

  async deriveBits(algorithm, key, length = null) {
    return derive(algorithm, key, "deriveBits", length === null ? null : toUint32(length)).buffer;
  },

  async deriveKey(algorithm, key, derivedType, extractable, keyUsages) {
    const uses = toUsages(keyUsages), parameters = normalize(derivedType, "importKey");
    const length = parameters.name === "HMAC" ? defaultLength(parameters) : null;
    return newKey(parameters, derive(algorithm, key, "deriveKey", length), extractable, uses);
  },
};

const there = Object.keys(subtle).join(", ");
for (const name of ["encrypt", "decrypt", "wrapKey", "unwrapKey"]) {
  subtle[name] = async () => fail("NotSupportedError", `there is no crypto.subtle.${name}: there are ${there}`);
}
define({ subtle }, crypto);
define({ CryptoKey });
