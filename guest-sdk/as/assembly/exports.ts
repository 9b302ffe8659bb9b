// The functions that the host calls. A tool exports them: export * from "../sdk/exports".
import { describe, execute } from "./tool";

export function starling_alloc(n: u32): usize { return heap.alloc(n); }
export function starling_describe(): u64 { return describe(); }
export function starling_execute(at: usize, length: u32): u64 { return execute(at, length); }
