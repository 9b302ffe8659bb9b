// Events, and the signals with which an exchange or a wait is called off.

export class Event {
  #type;
  #cancelable;
  defaultPrevented = false;
  target = null;

  constructor(type, { cancelable = false } = {}) {
    this.#type = String(type);
    this.#cancelable = cancelable;
  }

  get type() { return this.#type; }
  get cancelable() { return this.#cancelable; }
  get currentTarget() { return this.target; }
  preventDefault() { this.defaultPrevented ||= this.#cancelable; }
  stopPropagation() {}
  stopImmediatePropagation() { this.stopped = true; }
}

export class CustomEvent extends Event {
  constructor(type, { detail = null, ...rest } = {}) {
    super(type, rest);
    this.detail = detail;
  }
}

export class EventTarget {
  #listeners = []; // { type, listener, once }

  addEventListener(type, listener, options) {
    const { once = false, signal } = Object(options);
    if (!listener || signal?.aborted) return;
    if (this.#listeners.some((other) => other.type === type && other.listener === listener)) return;
    this.#listeners.push({ type, listener, once });
    signal?.addEventListener("abort", () => this.removeEventListener(type, listener));
  }

  removeEventListener(type, listener) {
    this.#listeners = this.#listeners.filter((other) => other.type !== type || other.listener !== listener);
  }

  // What a listener throws has nobody to catch it, and does not keep the others
  // from being called.
  dispatchEvent(event) {
    event.target = this;
    for (const entry of [...this.#listeners]) {
      if (event.stopped || entry.type !== event.type || !this.#listeners.includes(entry)) continue;
      if (entry.once) this.removeEventListener(entry.type, entry.listener);
      try {
        if (typeof entry.listener === "function") entry.listener.call(this, event);
        else entry.listener.handleEvent(event);
      } catch (error) {
        queueMicrotask(() => { throw error; });
      }
    }
    return !event.defaultPrevented;
  }
}

const aborted = () => new DOMException("This operation was aborted", "AbortError");
const late = () => new DOMException("The operation was aborted due to timeout", "TimeoutError");
let abort; // of a signal, for whoever made it
export let deadlineOf; // of a signal, on the clock of performance.now

export class AbortSignal extends EventTarget {
  #aborted = false;
  #reason;
  #deadline = Infinity;
  onabort = null;

  static {
    abort = (signal, reason = aborted()) => {
      if (signal.#aborted) return;
      signal.#aborted = true;
      signal.#reason = reason;
      signal.dispatchEvent(new Event("abort"));
    };
    deadlineOf = (signal) => signal.#deadline;
  }

  constructor() {
    super();
    this.addEventListener("abort", (event) => this.onabort?.(event));
  }

  static abort(reason) {
    const signal = new AbortSignal();
    abort(signal, reason);
    return signal;
  }

  static timeout(ms) {
    const signal = new AbortSignal();
    setTimeout(() => abort(signal, late()), ms);
    signal.#deadline = performance.now() + Number(ms);
    return signal;
  }

  static any(signals) {
    const all = [...signals], any = new AbortSignal();
    const first = all.find((signal) => signal.aborted);
    if (first) abort(any, first.reason);
    else for (const signal of all) {
      signal.addEventListener("abort", () => abort(any, signal.reason));
      any.#deadline = Math.min(any.#deadline, signal.#deadline);
    }
    return any;
  }

  get aborted() { return this.#aborted; }
  get reason() { return this.#reason; }
  throwIfAborted() { if (this.#aborted) throw this.#reason; }
}

export class AbortController {
  #signal = new AbortSignal();
  get signal() { return this.#signal; }
  abort(reason) { abort(this.#signal, reason); }
}
