// What the host does when it loads a module, done here, so that an author learns
// at once what is wrong with it.

import { runInNewContext } from "node:vm";
import { Refusal } from "./refusal.mjs";

const startUpTimeout = 10_000; // in milliseconds; the host counts units instead, and allows less

// startUp runs the module's start-up code as the host does, without host calls,
// and returns the tools that it describes.
export async function startUp(module, source) {
  let memory, said = "";
  const at = (pointer) => new DataView(memory.buffer, pointer);
  const refuse = () => { throw new Refusal("start-up code cannot make host calls: move the call into execute"); };
  const wasi = {
    clock_time_get: (clock, precision, result) => (at(result).setBigUint64(0, 946684800000000000n, true), 0),
    fd_write(fd, list, count, result) {
      let written = 0;
      for (let i = 0; i < count; i++) {
        const length = at(list + 8 * i).getUint32(4, true);
        said += Buffer.from(memory.buffer, at(list + 8 * i).getUint32(0, true), length);
        written += length;
      }
      at(result).setUint32(0, written, true);
      return 0;
    },
  };
  const { instance } = await WebAssembly.instantiate(module, {
    "starling:v1": { now: refuse, random: refuse, http: refuse },
    wasi_snapshot_preview1: new Proxy(wasi, { get: (known, name) => known[name] ?? (() => 58) }),
  });
  ({ memory } = instance.exports);
  try {
    instance.exports._initialize();
    runInNewContext("warmup()", { warmup: instance.exports.starling_warmup }, { timeout: startUpTimeout });
    const document = instance.exports.starling_describe();
    const text = Buffer.from(memory.buffer, Number(document >> 32n), Number(document & 0xffffffffn)).toString();
    return JSON.parse(text).tools;
  } catch (error) {
    if (error.code === "ERR_SCRIPT_EXECUTION_TIMEOUT") throw new Refusal(`${source} has not ended its start-up code after ${startUpTimeout / 1000} s`);
    throw new Refusal(`${source} fails while it starts up: ${said.trim() || error.message}`);
  }
}
