// Where in the author's files a line of the one script came from.

let lines = []; // for each line of the script: [file, line], or 0
export const setLines = (table) => { lines = table; };

// trace returns those lines of an error's stack that are the author's, as the
// author knows them.
export function trace(error) {
  const frames = [];
  for (const [, name, line] of String(error?.stack ?? "").matchAll(/^ *at (?:(.*?) \()?[^\n]*?:(\d+):\d+\)?$/gm)) {
    const source = lines[line - 1];
    if (source) frames.push(`at ${name && !name.endsWith(source[0]) ? name + " " : ""}(${source.join(":")})`);
  }
  return frames;
}

// describe returns the text of whatever was thrown.
export function describe(error) {
  if (error === null) return "null was thrown, as QuickJS does when there is no memory left";
  try {
    return String(error);
  } catch {
    return "something was thrown that has no text";
  }
}
