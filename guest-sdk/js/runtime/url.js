// URL and URLSearchParams, for http and https: what a tool can reach. Names of
// hosts are ASCII; others are refused, and not translated.

const encoder = (safe) => (text) => encodeURIComponent(String(text).toWellFormed())
  .replace(/%[0-9A-F]{2}/g, (escape) => {
    const char = String.fromCharCode(parseInt(escape.slice(1), 16));
    return safe.includes(char) ? char : escape;
  });

// What encodeURIComponent escapes and the part of a URL leaves as it is. A
// percent sign stays, so what is escaped already is not escaped twice.
const escapePath = encoder("%/:@&=+$,;[]|^\\");
const escapeQuery = (text) => encoder("%/:@&=+$,;[]|^\\?`{}")(text).replaceAll("'", "%27");
const escapeHash = encoder("%/:@&=+$,;[]|^\\?#{}");

const ports = { "http:": "80", "https:": "443" };
const form = /^(?:([A-Za-z][A-Za-z0-9+.-]*:))?(?:\/\/([^/?#\\]*))?([^?#]*)(\?[^#]*)?(#.*)?$/s;

export class URL {
  #path;
  #search;
  #hash;

  constructor(url, base) {
    const text = String(url).replace(/[\t\n\r]/g, "").trim();
    const [, scheme, authority, path, search, hash] = form.exec(text);
    const from = base !== undefined && !scheme && new URL(base);
    if (!from && (!scheme || authority === undefined)) throw new TypeError(`Invalid URL: ${JSON.stringify(text)}`);
    this.protocol = scheme?.toLowerCase() ?? from.protocol;
    if (!(this.protocol in ports)) throw new TypeError(`Invalid URL: the scheme of ${JSON.stringify(text)} is not http or https`);
    if (authority === undefined) Object.assign(this, { username: from.username, password: from.password, host: from.host });
    else this.#readAuthority(authority, text);
    const inherits = authority === undefined && path === "";
    const folder = from && authority === undefined && !path.startsWith("/") ? from.pathname.replace(/[^/]*$/, "") : "";
    this.pathname = inherits ? from.pathname : folder + path;
    this.search = search ?? (inherits ? from.search : "");
    this.hash = hash ?? "";
  }

  static canParse(url, base) { return URL.parse(url, base) !== null; }
  static parse(url, base) {
    try {
      return new URL(url, base);
    } catch {
      return null;
    }
  }

  #readAuthority(authority, text) {
    const [, user = "", password = "", host] = /^(?:([^:@]*)(?::([^@]*))?@)?(.*)$/s.exec(authority);
    this.username = user;
    this.password = password;
    if (!/^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:\d*)?$/.test(host) || /:(\d+)$/.exec(host)?.[1] > 65535) {
      throw new TypeError(`Invalid URL: the host of ${JSON.stringify(text)}`);
    }
    this.host = host.toLowerCase();
  }

  get host() { return this.hostname + (this.port && ":") + this.port; }
  set host(host) {
    const [, name, port = ""] = /^(.*?)(?::(\d*))?$/.exec(host);
    this.hostname = name;
    this.port = port === ports[this.protocol] ? "" : port;
  }

  get pathname() { return this.#path; }
  set pathname(path) {
    const kept = [];
    const segments = String(path).replaceAll("\\", "/").replace(/^\//, "").split("/");
    segments.forEach((segment, i) => {
      const dots = segment.replace(/%2e/gi, ".");
      if (dots === "..") kept.pop();
      if (dots !== "." && dots !== "..") kept.push(segment);
      else if (i === segments.length - 1) kept.push("");
    });
    this.#path = "/" + escapePath(kept.join("/"));
  }

  // The parameters are the truth once somebody has asked for them.
  get search() {
    const text = this.#search instanceof URLSearchParams ? String(this.#search) : this.#search;
    return text && "?" + text;
  }
  set search(text) { this.#search = escapeQuery(String(text).replace(/^\?/, "")); }
  get searchParams() {
    if (!(this.#search instanceof URLSearchParams)) this.#search = new URLSearchParams(this.#search);
    return this.#search;
  }

  get hash() { return this.#hash; }
  set hash(text) {
    const bare = escapeHash(String(text).replace(/^#/, ""));
    this.#hash = bare && "#" + bare;
  }

  get origin() { return `${this.protocol}//${this.host}`; }
  get href() {
    const user = this.username + (this.password && ":") + this.password;
    return `${this.protocol}//${user}${user && "@"}${this.host}${this.pathname}${this.search}${this.hash}`;
  }
  toString() { return this.href; }
  toJSON() { return this.href; }
}

const escapeForm = (text) => encodeURIComponent(String(text).toWellFormed())
  .replace(/[!'()~]/g, (char) => "%" + char.charCodeAt(0).toString(16).toUpperCase())
  .replaceAll("%20", "+");

function unescapeForm(text) {
  const spaced = text.replaceAll("+", " ");
  try {
    return decodeURIComponent(spaced);
  } catch {
    return spaced; // a percent sign that escapes nothing
  }
}

export class URLSearchParams {
  #pairs;

  constructor(init = "") {
    if (typeof init === "string") {
      this.#pairs = init.replace(/^\?/, "").split("&").filter(Boolean).map((pair) => {
        const [name, ...value] = pair.split("=");
        return [unescapeForm(name), unescapeForm(value.join("="))];
      });
    } else {
      const pairs = Symbol.iterator in init ? [...init] : Object.entries(init);
      this.#pairs = pairs.map(([name, value]) => [String(name), String(value)]);
    }
  }

  get size() { return this.#pairs.length; }
  append(name, value) { this.#pairs.push([String(name), String(value)]); }
  delete(name) { this.#pairs = this.#pairs.filter(([other]) => other !== String(name)); }
  get(name) { return this.getAll(name)[0] ?? null; }
  getAll(name) { return this.#pairs.filter(([other]) => other === String(name)).map(([, value]) => value); }
  has(name) { return this.getAll(name).length > 0; }
  set(name, value) {
    const first = this.#pairs.findIndex(([other]) => other === String(name));
    if (first < 0) return this.append(name, value);
    this.#pairs = this.#pairs.filter(([other], i) => i <= first || other !== String(name));
    this.#pairs[first][1] = String(value);
  }
  sort() { this.#pairs.sort(([a], [b]) => (a < b ? -1 : Number(a > b))); }
  forEach(each) { for (const [name, value] of this) each(value, name, this); }
  *keys() { for (const [name] of this) yield name; }
  *values() { for (const [, value] of this) yield value; }
  entries() { return this[Symbol.iterator](); }
  *[Symbol.iterator]() { yield* this.#pairs.map((pair) => [...pair]); }
  toString() { return this.#pairs.map(([name, value]) => `${escapeForm(name)}=${escapeForm(value)}`).join("&"); }
}
