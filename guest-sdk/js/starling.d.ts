// The types of "starling", for tsc and editors.

/** One tool of a module, or several in a list: the default export of the file. */
export interface Tool<Input = any, Output = unknown> {
  name: string;
  description?: string;
  inputSchema?: { type: "object"; [keyword: string]: unknown };
  outputSchema?: { [keyword: string]: unknown };
  effects?: string[];
  idempotent?: boolean;
  limits?: { fuel?: number; memoryBytes?: number; timeoutMs?: number };
  execute(input: Input, call: Call): Output | Promise<Output>;
}

export interface Call {
  runId: string;
  callId: string;
  attempt: number;
  variables?: { [name: string]: unknown };
}

/** An exchange without a response: what fetch rejects with. */
export declare class HTTPError extends Error {
  readonly reason: "denied" | "network" | "timeout" | "too_large" | "malformed";
}

/** Another call may help: an agent that repeats calls of the tool makes one. */
export declare function transient(error: Error | string): Error;
/** The host does not try again; the input is not at fault. */
export declare function cancel(error: Error | string): Error;
/** The host does not try again; the input can never succeed. */
export declare function discard(error: Error | string): Error;
/** An agent that repeats calls of the tool does so after the delay in milliseconds, which costs no attempt. */
export declare function snooze(ms: number, error: Error | string): Error;

/** The time of day in milliseconds, read and recorded at each use. */
export declare function now(): number;
/** 64 random bits, drawn and recorded at each use. */
export declare function random(): bigint;
