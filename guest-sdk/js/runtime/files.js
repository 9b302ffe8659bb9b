// The files of a call, by functions of Node's fs/promises. The host has them in folders, its mounts,
// which the first use in a call finds. Only what is in a mount can be read or changed.

import { decode, encode, file, nothing, openFiles } from "./host.js";
import { toBuffer } from "./text.js";

// What file() can be asked for: the numbers are those of adapter.wat.
const MOUNT = 0, NAME = 1, OPEN = 2, CLOSE = 3, READ = 4, WRITE = 5, LIST = 6, FSTAT = 7, STAT = 8, MKDIR = 9, RMDIR = 10, UNLINK = 11, RENAME = 12;

// Values of WASI's types.
const CREATE = 1, FOLDER_ONLY = 2, EXCLUSIVE = 4, TRUNCATE = 8; // oflags
const RIGHT_READ = 2, RIGHT_WRITE = 64, APPEND = 1, FOLLOW = 1;
const FOLDER = 3, FILE = 4, LINK = 7;

// errors are the errnos of WASI that the host returns, as Node has them.
const errors = {
  8: "EBADF: bad file descriptor", 10: "EBUSY: resource busy or locked", 20: "EEXIST: file already exists", 22: "EFBIG: file too large",
  25: "EILSEQ: illegal byte sequence", 28: "EINVAL: invalid argument", 31: "EISDIR: illegal operation on a directory",
  32: "ELOOP: too many symbolic links encountered", 33: "EMFILE: too many open files", 37: "ENAMETOOLONG: name too long",
  44: "ENOENT: no such file or directory", 51: "ENOSPC: no space left on device", 54: "ENOTDIR: not a directory",
  55: "ENOTEMPTY: directory not empty", 58: "ENOTSUP: operation not supported", 63: "EPERM: operation not permitted",
  69: "EROFS: read-only file system", 75: "EXDEV: cross-device link not permitted",
};
const EBUSY = 10, EEXIST = 20, EISDIR = 31, ENOENT = 44, ENOTDIR = 54, EROFS = 69;

const numbers = new ArrayBuffer(64), u8 = new Uint8Array(numbers), u32 = new Uint32Array(numbers), u64 = new BigUint64Array(numbers);
const buffer = (value) => (typeof value === "string" ? encode(value) : value);

// ask calls a function of the host with paths or buffers, and returns the errno.
function ask(what, values, first = nothing, second = nothing) {
  u32.set(values);
  return file(what, numbers, buffer(first), buffer(second));
}

// operation is what an error names: a system call, and its paths.
const operation = (syscall, path, dest) => ({ syscall, path, dest });

function fail(errno, { syscall, path, dest }) {
  const text = errors[errno] ?? `EIO: error ${errno}`;
  const none = errno === ENOENT && mounts().size === 0 ? " (there are no files; run --dir gives some)" : "";
  const error = new Error(`${text}, ${syscall} '${path}'${dest === undefined ? "" : ` -> '${dest}'`}${none}`);
  throw Object.assign(error, { code: text.split(":", 1)[0], syscall, path, ...(dest !== undefined && { dest }) });
}

function check(errno, operation) {
  if (errno) fail(errno, operation);
}

function invalid(code, message) {
  throw Object.assign(new TypeError(message), { code });
}

// ---- where a path leads ----

let byPath; // the descriptors of the mounts of the call, by their paths

function mounts() {
  if (byPath) return byPath;
  openFiles();
  byPath = new Map();
  for (let fd = 3; ask(MOUNT, [fd]) === 0; fd++) {
    const name = new ArrayBuffer(u32[1]);
    ask(NAME, [fd], name);
    byPath.set(decode(name), fd);
  }
  return byPath;
}

// isAbove reports whether a mount is below a path, which has no slash at its end.
const isAbove = (path) => [...mounts().keys()].some((at) => at.startsWith(`${path}/`));

// locate returns the descriptor of the mount that a path leads into, and the rest of the path. For
// other paths it returns the folder above mounts, or an errno. It looks up no name, so the rest may
// go through links. A rest that leaves the mount goes on from the folder above.
function locate(path) {
  if (typeof path !== "string") invalid("ERR_INVALID_ARG_TYPE", `a path is a string, and this is ${path === null ? "null" : `of type ${typeof path}`}`);
  if (path === "") return { errno: ENOENT };
  const names = (path.startsWith("/") || !mounts().has("/workspace") ? path : `/workspace/${path}`).split("/");
  let at = "";
  for (let i = 0; i < names.length; i++) {
    if (names[i] === "" || names[i] === ".") continue;
    if (names[i] === "..") {
      at = at.slice(0, Math.max(at.lastIndexOf("/"), 0));
      continue;
    }
    const above = at;
    at += `/${names[i]}`;
    const fd = mounts().get(at);
    if (fd === undefined) {
      if (!isAbove(at)) return { errno: isAbove(above) && names.slice(i + 1).every((name) => name === "") ? EROFS : ENOENT };
      continue;
    }
    const rest = names.slice(i + 1), exit = indexOfExit(rest);
    if (exit < 0) return { fd, name: rest.join("/").replace(/^\/+/, "") || "." };
    i += exit + 1;
    at = above;
  }
  return isAbove(at) ? { folder: at } : { errno: ENOENT };
}

// indexOfExit returns the index of the .. by which names leave the folder that they begin in, or -1.
function indexOfExit(names) {
  let depth = 0;
  return names.findIndex((name) => (name === ".." ? depth-- === 0 : (depth += name !== "" && name !== ".", false)));
}

// reach returns the mount that a path leads into, and the rest of the path. It fails for a path
// that leads elsewhere: with the given errno if there is a folder, and with EROFS, instead of ENOENT,
// if something would be made where only mounts are.
function reach(path, operation, folder, makes) {
  const place = locate(path);
  if (place.folder !== undefined) fail(folder, operation);
  if (place.errno) fail(place.errno === EROFS && !makes ? ENOENT : place.errno, operation);
  return place;
}

// askAt calls a function for the place that a path leads to, as reach finds it, and returns the errno.
function askAt(what, path, operation, folder, makes) {
  const { fd, name } = reach(path, operation, folder, makes);
  return ask(what, [fd], name);
}

// ---- what is there ----

class Entry {
  #kind;
  constructor(kind, members) {
    this.#kind = kind;
    Object.assign(this, members);
  }
  isFile() { return this.#kind === FILE; }
  isDirectory() { return this.#kind === FOLDER; }
  isSymbolicLink() { return this.#kind === LINK; }
}

class Stats extends Entry {
  constructor(kind, size, mtimeMs) { super(kind, { size, mtimeMs, mtime: new Date(mtimeMs) }); }
}

class Dirent extends Entry {}

const startTime = 946684800000; // of what the call was given: 2000-01-01

// described returns what the host has written about a file.
const described = () => new Stats(u8[16], Number(u64[4]), Number(u64[6] / 1_000_000n));

function statsOf(path, operation, follow = FOLLOW) {
  const place = locate(path);
  if (place.folder !== undefined) return new Stats(FOLDER, 0, startTime);
  if (place.errno) fail(ENOENT, operation);
  check(ask(STAT, [place.fd, follow], place.name), operation);
  return described();
}

// withOpen opens a file or folder and returns what use returns of its descriptor.
function withOpen({ fd: folder, name }, operation, [how, rights, flags = 0], use) {
  check(ask(OPEN, [folder, how, rights, flags], name), operation);
  const [fd] = u32;
  try {
    return use(fd);
  } finally {
    ask(CLOSE, [fd]);
  }
}

const join = (path, name) => (path.endsWith("/") ? path + name : `${path}/${name}`);

// list returns the names in a folder, and what each is, in the order of the names' bytes.
function list(path, operation) {
  const place = locate(path);
  if (place.folder !== undefined) {
    const below = [...mounts().keys()].filter((at) => at.startsWith(`${place.folder}/`)).map((at) => at.slice(place.folder.length + 1).split("/", 1)[0]);
    return [...new Set(below)].sort().map((name) => ({ name, kind: FOLDER }));
  }
  if (place.errno) fail(ENOENT, operation);
  return withOpen(place, operation, [FOLDER_ONLY, RIGHT_READ], (fd) => {
    const entries = [], area = new ArrayBuffer(16 << 10), view = new DataView(area);
    for (let cookie = 0, used = area.byteLength; used === area.byteLength;) {
      check(ask(LIST, [fd, cookie], area), operation);
      [used] = u32;
      for (let at = 0, end; at + 24 <= used && (end = at + 24 + view.getUint32(at + 16, true)) <= used; at = end) {
        cookie = view.getUint32(at, true);
        const name = decode(area.slice(at + 24, end));
        if (name !== "." && name !== "..") entries.push({ name, kind: view.getUint8(at + 20) });
      }
    }
    return entries;
  });
}

// ---- contents ----

// isText reports whether a file is read as text, and throws for an encoding that is not UTF-8.
function isText(options) {
  const encoding = typeof options === "string" ? options : options?.encoding;
  if (encoding === undefined || encoding === null || encoding === "buffer") return false;
  if (/^utf-?8$/i.test(encoding)) return true;
  invalid("ERR_INVALID_ARG_VALUE", `the encoding is "utf8", or none for the bytes, and not ${JSON.stringify(encoding)}`);
}

function read(path, operation) {
  return withOpen(reach(path, operation, EISDIR), operation, [0, RIGHT_READ], (fd) => {
    check(ask(FSTAT, [fd]), operation);
    if (u8[16] === FOLDER) fail(EISDIR, { ...operation, syscall: "read" });
    const content = new ArrayBuffer(Number(u64[4]));
    if (content.byteLength > 0) check(ask(READ, [fd], content), operation);
    return content;
  });
}

// flags are the ways to open a file that is written.
const flags = {
  w: [CREATE | TRUNCATE, RIGHT_WRITE], wx: [CREATE | EXCLUSIVE, RIGHT_WRITE],
  a: [CREATE, RIGHT_WRITE, APPEND], ax: [CREATE | EXCLUSIVE, RIGHT_WRITE, APPEND],
};

function write(path, content, operation, flag) {
  if (!Object.hasOwn(flags, flag)) invalid("ERR_INVALID_ARG_VALUE", `the flag of a file that is written is one of ${Object.keys(flags).join(", ")}, and not ${JSON.stringify(flag)}`);
  withOpen(reach(path, operation, EISDIR, true), operation, flags[flag], (fd) => {
    if (content.byteLength > 0) check(ask(WRITE, [fd], content), { ...operation, syscall: "write" });
  });
}

// toContent returns a buffer with the content that a program has given.
function toContent(data) {
  if (typeof data === "string") return encode(data);
  if (data instanceof ArrayBuffer) return data;
  if (!ArrayBuffer.isView(data)) invalid("ERR_INVALID_ARG_TYPE", `what is written is a string or bytes, and this is ${data === null ? "null" : `of type ${typeof data}`}`);
  return data.byteLength === data.buffer.byteLength && data.buffer instanceof ArrayBuffer ? data.buffer : toBuffer(data);
}

// remove removes what a name in a mount leads to, with all that is below it.
function remove({ fd, name }, path, operation) {
  const errno = ask(UNLINK, [fd], name);
  if (errno !== EISDIR) return check(errno, operation);
  for (const entry of list(path, operation)) {
    const below = join(path, entry.name);
    remove(locate(below), below, operation);
  }
  check(ask(RMDIR, [fd], name), operation);
}

export const fs = {
  async readFile(path, options) {
    const text = isText(options), content = read(path, operation("open", path));
    return text ? decode(content) : new Uint8Array(content);
  },
  async writeFile(path, data, options) {
    isText(options);
    write(path, toContent(data), operation("open", path), options?.flag ?? "w");
  },
  async appendFile(path, data, options) {
    isText(options);
    write(path, toContent(data), operation("open", path), options?.flag ?? "a");
  },
  async copyFile(from, to, mode = 0) { // 1 is COPYFILE_EXCL, and the others ask for what nobody can see
    const both = operation("copyfile", from, to);
    write(to, read(from, both), both, mode & 1 ? "wx" : "w");
  },
  async readdir(path, { recursive, withFileTypes } = {}) {
    const all = (parentPath, prefix) => list(parentPath, operation("scandir", parentPath)).flatMap(({ name, kind }) => [
      withFileTypes ? new Dirent(kind, { name, parentPath }) : prefix + name,
      ...(recursive && kind === FOLDER ? all(join(parentPath, name), `${prefix}${name}/`) : []),
    ]);
    return all(path, "");
  },
  async stat(path) { return statsOf(path, operation("stat", path)); },
  async lstat(path) { return statsOf(path, operation("lstat", path), 0); },
  async access(path) { statsOf(path, operation("access", path)); },
  async mkdir(path, { recursive } = {}) {
    const making = operation("mkdir", path);
    const make = (path) => askAt(MKDIR, path, making, EEXIST, true);
    if (!recursive || typeof path !== "string" || path === "") return check(make(path), making);
    for (let end = 0; end < path.length;) {
      end = path.indexOf("/", end + 1);
      if (end < 0) end = path.length;
      const part = path.slice(0, end);
      if (locate(part).folder !== undefined) continue;
      const errno = make(part);
      if (errno === EEXIST && statsOf(part, making).isDirectory()) continue;
      check(errno === EEXIST && end < path.length ? ENOTDIR : errno, making);
    }
  },
  async rm(path, { recursive, force } = {}) {
    const removing = operation("rm", path);
    try {
      const place = reach(path, removing, EBUSY), stats = statsOf(path, removing, 0);
      if (/(^|\/)\.\.?\/*$/.test(place.name)) fail(EBUSY, removing); // a mount, or . or ..
      if (stats.isDirectory() && !recursive) fail(EISDIR, removing);
      remove(place, path, removing);
    } catch (error) {
      if (!force || error?.code !== "ENOENT") throw error;
    }
  },
  async rmdir(path) {
    const removing = operation("rmdir", path);
    check(askAt(RMDIR, path, removing, EBUSY), removing);
  },
  async unlink(path) {
    const removing = operation("unlink", path);
    check(askAt(UNLINK, path, removing, EISDIR), removing);
  },
  async rename(from, to) {
    const moving = operation("rename", from, to);
    const a = reach(from, moving, EBUSY), b = reach(to, moving, EBUSY, true);
    check(ask(RENAME, [a.fd, b.fd], a.name, b.name), moving);
  },
};
