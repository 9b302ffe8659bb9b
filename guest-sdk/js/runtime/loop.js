// The event loop: timers, for which waiting moves the clock and takes no time, and exchanges, each
// of which takes its time on the clock.

import * as host from "./host.js";

const timers = []; // a heap: each is due before those at twice its place and one or two more
const waiting = new Map(); // the timers that nobody has cleared, by id
let lastTimer = 0;

export const setTimer = (repeat) => (action, ms = 0, ...args) => {
  const every = Math.max(Number(ms) || 0, 1);
  const timer = { id: ++lastTimer, at: performance.now() + every, every: repeat && every, action, args };
  waiting.set(timer.id, timer);
  push(timer);
  return timer.id;
};
export const clearTimer = (id) => { waiting.delete(id); };

// fire waits for the timer that is due first and fires it, if it is due by a time. It returns whether
// there was one.
function fire(by) {
  while (timers.length > 0 && timers[0].at <= by) {
    const timer = pop();
    if (!waiting.has(timer.id)) continue;
    host.sleep(Math.max(timer.at - performance.now(), 0) * 1e6);
    if (timer.every) {
      timer.at += timer.every;
      push(timer);
    } else clearTimer(timer.id);
    timer.action(...timer.args);
    return true;
  }
  return false;
}

const before = (a, b) => a.at < b.at || (a.at === b.at && a.id < b.id);

function push(timer) {
  let i = timers.push(timer) - 1;
  for (let above; i > 0 && before(timer, timers[above = (i - 1) >> 1]); i = above) timers[i] = timers[above];
  timers[i] = timer;
}

function pop() {
  const first = timers[0], last = timers.pop();
  let i = 0;
  for (let below; (below = 2 * i + 1) < timers.length; i = below) {
    if (below + 1 < timers.length && before(timers[below + 1], timers[below])) below++;
    if (!before(timers[below], last)) break;
    timers[i] = timers[below];
  }
  if (timers.length > 0) timers[i] = last;
  return first;
}

// ---- exchanges: one after another, when no code runs ----

const asked = []; // those that have not begun
const landed = []; // those that have ended, whose answers nobody has yet
const most = 64; // that wait; a further one begins the first, so that a loop meets the host's limits

/** exchange makes an exchange, and settles as it does, or as the signal is aborted before that. */
export const exchange = (make, signal) => new Promise((resolve, reject) => {
  signal?.throwIfAborted();
  signal?.addEventListener("abort", () => reject(signal.reason));
  asked.push({ make, resolve, reject, signal });
  if (asked.length > most) begin();
});

export const exchanging = () => landed.length + asked.length > 0;

function begin() {
  const { make, resolve, reject, signal } = asked.shift();
  if (signal?.aborted) return;
  let hand;
  try {
    const answer = make();
    hand = () => resolve(answer);
  } catch (error) {
    hand = () => reject(error);
  }
  landed.push({ hand, at: performance.now() });
}

// next does what is next when no code runs, and returns whether there was anything. Timers that
// were due before an exchange has ended fire before its answer is handed out.
export function next() {
  if (landed.length > 0) {
    if (!fire(landed[0].at)) landed.shift().hand();
    return true;
  }
  if (asked.length === 0) return fire(Infinity);
  begin();
  return true;
}
