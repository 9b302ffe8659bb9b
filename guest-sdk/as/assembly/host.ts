// The functions of the host, and what a program in AssemblyScript needs of its environment.

@external("starling:v1", "now")
declare function hostNow(): u64;
@external("starling:v1", "random")
declare function hostRandom(): u64;
@external("starling:v1", "http")
declare function hostHTTP(request: usize, requestLength: usize, buffer: usize, capacity: usize): i64;
@external("wasi_snapshot_preview1", "fd_write")
declare function write(descriptor: u32, areas: usize, count: u32, written: usize): u32;

/** Returns the time of day, in nanoseconds since 1970-01-01T00:00:00Z. Each call is recorded. */
export function now(): u64 {
  return hostNow();
}

/** Returns 64 random bits. Each call is recorded. `Math.random()` is seeded by one. */
export function random(): u64 {
  return hostRandom();
}

/** Encodes text as UTF-8. Half of a surrogate pair becomes U+FFFD. */
export function encode(text: string): ArrayBuffer {
  return String.UTF8.encode(text, false, String.UTF8.ErrorMode.REPLACE);
}

/** Writes a line to the log of the call. */
export function log(text: string): void {
  const line = encode(text + "\n");
  const area = new StaticArray<usize>(3);
  area[0] = changetype<usize>(line);
  area[1] = line.byteLength;
  const at = changetype<usize>(area);
  write(2, at, 1, at + 2 * sizeof<usize>());
}

/** The outcome of an exchange: a response, or a negative status and its text. */
export class Answer {
  constructor(public status: i64, public bytes: ArrayBuffer) {}
}

/** Makes one exchange. */
export function exchange(request: ArrayBuffer): Answer {
  let buffer = new ArrayBuffer(32768);
  const status = hostHTTP(changetype<usize>(request), request.byteLength, changetype<usize>(buffer), buffer.byteLength);
  let n = status >= 0 ? status : hostHTTP(0, 0, changetype<usize>(buffer), buffer.byteLength);
  if (n > buffer.byteLength) {
    buffer = new ArrayBuffer(<i32>n);
    n = hostHTTP(0, 0, changetype<usize>(buffer), buffer.byteLength);
  }
  return new Answer(status, buffer.slice(0, <i32>max<i64>(n, 0)));
}

/** What `throw`, `assert` and a failed check call. Its message and place are in the log. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  log("panic at " + (file ? file : "") + ":" + line.toString() + ":" + column.toString() + ": " + (message ? message : ""));
  unreachable();
}

/** The seed of Math.random. */
export function seed(): f64 {
  return reinterpret<f64>(hostRandom());
}
