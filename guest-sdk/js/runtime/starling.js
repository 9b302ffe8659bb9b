// What a tool imports from "starling": the terms of the Go SDK.

import * as host from "./host.js";

const mark = (kind, error, more) =>
  Object.assign(error instanceof Error ? error : new Error(String(error)), { kind }, more);

/** A tool as it is: starling.d.ts takes the types of its input and output from its schemas. */
export const tool = (tool) => tool;

/** Another call may help: an agent that repeats calls of the tool makes one. */
export const transient = (error) => mark("transient", error);

/** The host does not try again; the input is not at fault. */
export const cancel = (error) => mark("cancel", error);

/** The host does not try again; the input can never succeed. */
export const discard = (error) => mark("discard", error);

/** An agent that repeats calls of the tool does so after the delay in milliseconds, which costs no attempt. */
export const snooze = (ms, error) => mark("snooze", error, { retryAfterMs: ms });

/** The time of day in milliseconds, read and recorded at each use. */
export const now = () => Number(host.now() / 1000n) / 1000;

/** 64 random bits as a BigInt, drawn and recorded at each use. */
export const random = () => host.random();

export { HTTPError } from "./fetch.js";
