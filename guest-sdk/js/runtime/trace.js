// Where in the author's files a place in the one script came from.

let files = []; // the author's, and those of packages, which begin with node_modules/
let runs = ""; // which parts of the script are whose: the host makes the table
export const setLines = (table) => { ({ files, runs } = table); };

// trace returns those lines of an error's stack that are not of runtime/, as the
// author knows them. It begins where the error was made, and not in the class of
// the error, which is on QuickJS's stack as well.
export function trace(error) {
  const all = frames(error);
  const classes = new Set();
  for (let made = error; made instanceof Error; made = Object.getPrototypeOf(made)) classes.add(made.constructor?.name);
  while (all.length > 1 && classes.has(all[0].name)) all.shift();
  return all.map(({ name, file, at }) => `at ${name && !name.endsWith(file) ? name + " " : ""}(${file}:${at})`);
}

// packageLoads returns whether what runs is the start-up code of a package. The
// function that holds the start-up code of a file has the file's name.
export function packageLoads() {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = Infinity;
  const { stack } = new Error();
  Error.stackTraceLimit = limit;
  const authors = files.filter((file) => file && !file.startsWith("node_modules/"));
  for (const [, name] of stack.matchAll(/^ *at (.*?) \(/gm)) {
    if (name.includes("node_modules/")) return true;
    if (authors.some((file) => name.endsWith(file))) return false;
  }
  return false;
}

function frames(error) {
  const found = [...String(error?.stack ?? "").matchAll(/^ *at (?:(.*?) \()?tool:(\d+):(\d+)\)?$/gm)];
  const table = found.length > 0 ? runs.split(",") : [];
  const run = (i) => table[i].split(" ").map((n) => parseInt(n, 36));
  return found.flatMap(([, name, ...place]) => {
    const [line, column] = place.map((n) => n - 1);
    let low = 0, high = table.length; // the run is the last that begins at the place or before it
    while (low < high) {
      const middle = (low + high) >> 1, [at, from] = run(middle);
      if (at < line || (at === line && from <= column)) low = middle + 1;
      else high = middle;
    }
    const [, , file, lines, columns] = low > 0 ? run(low - 1) : [0, 0, -1];
    if (file < 0) return [];
    // Of a package the table has lines only, and the first column stands for none.
    const exact = column > 0 && !files[file].startsWith("node_modules/");
    return [{ name, file: files[file], at: line + lines + 1 + (exact ? `:${column + columns + 1}` : "") }];
  });
}

// describe returns the text of whatever was thrown.
export function describe(error) {
  if (error === null) return "null was thrown, as QuickJS does when there is no memory left";
  try {
    if (error instanceof AggregateError && !error.message) return `${error.name}: ${error.errors.map(describe).join("; ")}`;
    const text = String(error);
    return text === "[object Object]" ? JSON.stringify(error) : text;
  } catch {
    return "something was thrown that has no text";
  }
}

// messageOf returns what a tool says by an error.
export function messageOf(error) {
  try {
    return String(error.message);
  } catch {
    return describe(error);
  }
}
