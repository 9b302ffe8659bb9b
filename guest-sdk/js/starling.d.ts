// The types of "starling", for editors and tsc. A folder needs this file only for them: the
// host has the module itself.

declare module "starling" {
  /** A JSON Schema. A description in it is for the model. */
  export type Schema = { readonly [keyword: string]: unknown };

  /** The JSON values that a schema allows, as far as TypeScript can say it. */
  export type FromSchema<S> =
    S extends { readonly const: infer C } ? C :
    S extends { readonly enum: readonly (infer E)[] } ? E :
    S extends { readonly anyOf: readonly (infer A)[] } ? FromSchema<A> :
    S extends { readonly oneOf: readonly (infer A)[] } ? FromSchema<A> :
    S extends { readonly type: infer T } ? FromType<T, S> :
    any;

  type FromType<T, S> =
    T extends readonly (infer U)[] ? FromType<U, S> :
    T extends "string" ? string :
    T extends "number" ? number :
    T extends "integer" ? number :
    T extends "boolean" ? boolean :
    T extends "null" ? null :
    T extends "array" ? (S extends { readonly items: infer I } ? FromSchema<I>[] : any[]) :
    T extends "object" ? FromObject<S> :
    any;

  type FromObject<S> =
    S extends { readonly properties: infer P }
      ? Flat<{ -readonly [K in keyof P & Required<S>]: FromSchema<P[K]> } & { -readonly [K in Exclude<keyof P, Required<S>>]?: FromSchema<P[K]> }>
      : S extends { readonly additionalProperties: infer V extends Schema } ? { [name: string]: FromSchema<V> } : { [name: string]: any };

  type Required<S> = S extends { readonly required: readonly (infer R)[] } ? R : never;
  type Flat<T> = { [K in keyof T]: T[K] };

  /** One tool of a file, or several in a list: the default export. */
  export interface Tool<Input = any, Output = unknown> {
    /** What the model calls: a small letter, then small letters, digits, hyphens and underscores. */
    name: string;
    /** For the model: the tool's purpose, and when to use it. */
    description?: string;
    inputSchema?: { readonly type: "object"; readonly [keyword: string]: unknown };
    outputSchema?: Schema;
    /** The hosts that the tool wants to reach. This grants nothing. */
    effects?: readonly string[];
    /** Repeating a call does no harm. */
    idempotent?: boolean;
    limits?: { fuel?: number; memoryBytes?: number; timeoutMs?: number };
    execute(input: Input, call: Call): Output | Promise<Output>;
  }

  /** A tool whose input and output have the types that its schemas describe. */
  export function tool<const I extends { readonly type: "object"; readonly [keyword: string]: unknown }, const O extends Schema = Schema>(
    tool: Omit<Tool<FromSchema<I>, FromSchema<O>>, "inputSchema" | "outputSchema"> & { inputSchema?: I; outputSchema?: O },
  ): Tool<FromSchema<I>, FromSchema<O>>;

  export interface Call {
    runId: string;
    callId: string;
    attempt: number;
    variables?: { [name: string]: unknown };
  }

  /** An exchange without a response: what fetch rejects with. */
  export class HTTPError extends Error {
    readonly reason: "denied" | "network" | "timeout" | "too_large" | "malformed";
  }

  /** Another call may help: an agent that repeats calls of the tool makes one. */
  export function transient(error: Error | string): Error;
  /** The host does not try again; the input is not at fault. */
  export function cancel(error: Error | string): Error;
  /** The host does not try again; the input can never succeed. */
  export function discard(error: Error | string): Error;
  /** An agent that repeats calls of the tool does so after the delay in milliseconds, which costs no attempt. */
  export function snooze(ms: number, error: Error | string): Error;

  /** The time of day in milliseconds, read and recorded at each use. */
  export function now(): number;
  /** 64 random bits, drawn and recorded at each use. */
  export function random(): bigint;

  /**
   * The files of a call, as the promises of Node's fs. A relative path begins in /workspace. What fails is an
   * error with a code, such as ENOENT or EROFS.
   */
  export const fs: {
    readFile(path: string, options: "utf8" | "utf-8" | { encoding: "utf8" | "utf-8" }): Promise<string>;
    readFile(path: string): Promise<Uint8Array>;
    writeFile(path: string, data: string | ArrayBuffer | ArrayBufferView, options?: WriteOptions): Promise<void>;
    appendFile(path: string, data: string | ArrayBuffer | ArrayBufferView, options?: WriteOptions): Promise<void>;
    copyFile(from: string, to: string, mode?: number): Promise<void>;
    /** The names in the order of their bytes. */
    readdir(path: string, options: { withFileTypes: true; recursive?: boolean }): Promise<Dirent[]>;
    readdir(path: string, options?: { recursive?: boolean }): Promise<string[]>;
    stat(path: string): Promise<Stats>;
    /** Of a link itself. */
    lstat(path: string): Promise<Stats>;
    access(path: string): Promise<void>;
    mkdir(path: string, options?: { recursive?: boolean }): Promise<void>;
    rm(path: string, options?: { recursive?: boolean; force?: boolean }): Promise<void>;
    rmdir(path: string): Promise<void>;
    unlink(path: string): Promise<void>;
    rename(from: string, to: string): Promise<void>;
  };
  export type WriteOptions = "utf8" | "utf-8" | { encoding?: "utf8" | "utf-8"; flag?: "w" | "wx" | "a" | "ax" };
  export interface Stats {
    size: number;
    mtimeMs: number;
    mtime: Date;
    isFile(): boolean;
    isDirectory(): boolean;
    isSymbolicLink(): boolean;
  }
  export interface Dirent {
    name: string;
    parentPath: string;
    isFile(): boolean;
    isDirectory(): boolean;
    isSymbolicLink(): boolean;
  }
}
