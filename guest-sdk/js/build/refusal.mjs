import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** A reason for which there is no module, and that the author can do something about. */
export class Refusal extends Error {}

export const sdk = dirname(dirname(fileURLToPath(import.meta.url)));

// Where npm has put what this package needs: in it, or beside it.
export const packages = [join(sdk, "node_modules"), dirname(sdk)].find((dir) => existsSync(join(dir, "quickjs-wasi"))) ?? sdk;
