import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** A reason for which there is no module, and that the author can do something about. */
export class Refusal extends Error {}

export const sdk = dirname(dirname(fileURLToPath(import.meta.url)));
export const packages = join(sdk, "node_modules");
