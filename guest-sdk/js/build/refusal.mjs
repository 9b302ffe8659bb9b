import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** A reason for which there is no module, and that the author can do something about. */
export class Refusal extends Error {}

/** complain prints a message, without the characters that a terminal obeys, which a tool may have in its paths and lines. */
export const complain = (kind, message) => console.error(
  `${kind}: ${message}`.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, "\ufffd"));

export const sdk = dirname(dirname(fileURLToPath(import.meta.url)));

// Where npm has put what this package needs: in it, or beside it.
export const packages = [join(sdk, "node_modules"), dirname(sdk)].find((dir) => existsSync(join(dir, "quickjs-wasi"))) ?? sdk;
