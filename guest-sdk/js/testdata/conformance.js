// The tools that spec/tck wants of an SDK.
import { cancel, discard, HTTPError, now, random, snooze, transient } from "starling";

const kinds = { transient, cancel, discard, snooze: (message) => snooze(1500, message), tool: (message) => new Error(message) };

export default [
  {
    name: "echo",
    description: "Returns its input and its context.",
    execute: (input, call) => ({ input, run_id: call.runId, call_id: call.callId, attempt: call.attempt, variables: call.variables ?? null }),
  },
  {
    name: "fail",
    description: "Fails as it is told.",
    execute({ kind, message }) {
      throw kinds[kind](message);
    },
  },
  {
    name: "effects",
    description: "Reads the clock and draws a random number.",
    execute: () => ({ now_ms: Math.floor(now()), random: random().toString() }),
  },
  {
    name: "fetch",
    description: "Makes one request.",
    async execute({ url, method, body, effect }) {
      try {
        const response = await fetch(url, { method, body, headers: effect ? { "Starling-Effect": effect } : {} });
        return { status: response.status, body: await response.text() };
      } catch (error) {
        if (error instanceof HTTPError) return { failed: error.reason };
        throw error;
      }
    },
  },
];
