export enum Kind { Null, False, True, Number, String, Array, Object, Failure }

/** A JSON value, or the failure of a tool. Members keep their order. */
export class Json {
  /** The text of a string, the digits of a number, or the message of a failure. */
  value: string = "";
  /** The items of an array, or the values of the members of an object. */
  items: Json[] = [];
  /** The names of the members. */
  names: string[] = [];
  /** The kind of a failure, and its delay. */
  reason: string = "";
  delay: u64 = 0;

  constructor(public kind: Kind) {}

  static null(): Json { return new Json(Kind.Null); }
  static object(): Json { return new Json(Kind.Object); }
  static array(): Json { return new Json(Kind.Array); }
  static bool(value: bool): Json { return new Json(value ? Kind.True : Kind.False); }

  static string(value: string): Json {
    const json = new Json(Kind.String);
    json.value = value;
    return json;
  }

  static integer(value: i64): Json {
    const json = new Json(Kind.Number);
    json.value = value.toString();
    return json;
  }

  /** Returns a number. One that JSON does not have becomes null. */
  static number(value: f64): Json {
    if (!isFinite(value)) return Json.null();
    const json = new Json(Kind.Number);
    json.value = value.toString();
    return json;
  }

  /** Reads a JSON document, or returns null (not a value) if it is none. */
  static parse(text: string): Json | null {
    const parser = new Parser(text);
    const json = parser.read(0);
    return parser.wrong || parser.next() >= 0 ? null : json;
  }

  /** Returns a member, or a value of the kind Null. */
  get(name: string): Json {
    const i = this.names.indexOf(name);
    return i < 0 || this.kind != Kind.Object ? Json.null() : this.items[i];
  }

  has(name: string): bool { return this.kind == Kind.Object && this.names.includes(name); }

  /** Returns a member that is a string, or "". */
  text(name: string): string {
    const member = this.get(name);
    return member.kind == Kind.String ? member.value : "";
  }

  /** Returns the integer part of a member, or 0. `5.0` is 5. */
  integer(name: string): i64 { return this.get(name).asInteger(); }

  /** Returns a member that is a number, or 0. */
  number(name: string): f64 { return this.get(name).asNumber(); }

  bool(name: string): bool { return this.get(name).kind == Kind.True; }

  asInteger(): i64 {
    if (this.kind != Kind.Number) return 0;
    const plain = !this.value.includes(".") && !this.value.includes("e") && !this.value.includes("E");
    return plain ? i64.parse(this.value) : <i64>F64.parseFloat(this.value);
  }

  asNumber(): f64 { return this.kind == Kind.Number ? F64.parseFloat(this.value) : 0; }

  /** Adds a member, or replaces it, and returns the object. */
  set(name: string, value: Json): Json {
    const i = this.names.indexOf(name);
    if (i >= 0) {
      this.items[i] = value;
    } else {
      this.names.push(name);
      this.items.push(value);
    }
    return this;
  }

  setText(name: string, value: string): Json { return this.set(name, Json.string(value)); }
  setInteger(name: string, value: i64): Json { return this.set(name, Json.integer(value)); }
  setNumber(name: string, value: f64): Json { return this.set(name, Json.number(value)); }
  setBool(name: string, value: bool): Json { return this.set(name, Json.bool(value)); }

  /** Adds an item, and returns the array. */
  push(value: Json): Json {
    this.items.push(value);
    return this;
  }

  /** Returns the JSON text. */
  toString(): string {
    switch (this.kind) {
      case Kind.False: return "false";
      case Kind.True: return "true";
      case Kind.Number: return this.value;
      case Kind.String:
      case Kind.Failure: return quote(this.value);
      case Kind.Array:
      case Kind.Object: {
        const parts = new Array<string>(this.items.length);
        for (let i = 0; i < this.items.length; i++) {
          const item = this.items[i].toString();
          parts[i] = this.kind == Kind.Array ? item : quote(this.names[i]) + ":" + item;
        }
        return this.kind == Kind.Array ? "[" + parts.join(",") + "]" : "{" + parts.join(",") + "}";
      }
      default: return "null";
    }
  }
}

function quote(text: string): string {
  const parts: string[] = ['"'];
  let from = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c >= 0x20 && c != 0x22 && c != 0x5c) continue;
    parts.push(text.substring(from, i));
    parts.push(c >= 0x20 ? "\\" + String.fromCharCode(c) : "\\u00" + (c < 16 ? "0" : "") + c.toString(16));
    from = i + 1;
  }
  parts.push(text.substring(from));
  parts.push('"');
  return parts.join("");
}

class Parser {
  at: i32 = 0;
  wrong: bool = false;

  constructor(public text: string) {}

  peek(): i32 { return this.at < this.text.length ? this.text.charCodeAt(this.at) : -1; }

  /** Skips white space and returns the next character, or -1. */
  next(): i32 {
    let c = this.peek();
    while (c == 0x20 || c == 0x0a || c == 0x0d || c == 0x09) {
      this.at++;
      c = this.peek();
    }
    return c;
  }

  fail(): Json {
    this.wrong = true;
    return Json.null();
  }

  read(depth: i32): Json {
    const c = this.next();
    if (c == 0x22) return Json.string(this.string());
    if (c == 0x5b || c == 0x7b) {
      const list = c == 0x5b ? Json.array() : Json.object();
      const end = c + 2;
      this.at++;
      if (depth > 500) return this.fail();
      for (let first = true; this.next() != end; first = false) {
        if (!first) {
          if (this.peek() != 0x2c) return this.fail();
          this.at++;
          this.next();
        }
        if (end == 0x7d) {
          list.names.push(this.string());
          if (this.next() != 0x3a) return this.fail();
          this.at++;
        }
        list.items.push(this.read(depth + 1));
        if (this.wrong) return list;
      }
      this.at++;
      return list;
    }
    if (this.text.startsWith("null", this.at)) return this.word(4, Kind.Null);
    if (this.text.startsWith("true", this.at)) return this.word(4, Kind.True);
    if (this.text.startsWith("false", this.at)) return this.word(5, Kind.False);
    const from = this.at;
    if (c == 0x2d) this.at++;
    const zero = this.peek() == 0x30;
    const digits = this.digits();
    if (digits == 0 || (zero && digits > 1)) return this.fail();
    if (this.peek() == 0x2e) {
      this.at++;
      if (!this.digits()) return this.fail();
    }
    if ((this.peek() | 0x20) == 0x65) {
      this.at++;
      if (this.peek() == 0x2b || this.peek() == 0x2d) this.at++;
      if (!this.digits()) return this.fail();
    }
    const json = new Json(Kind.Number);
    json.value = this.text.substring(from, this.at);
    return json;
  }

  word(length: i32, kind: Kind): Json {
    this.at += length;
    return new Json(kind);
  }

  digits(): i32 {
    const from = this.at;
    while (this.peek() >= 0x30 && this.peek() <= 0x39) this.at++;
    return this.at - from;
  }

  string(): string {
    if (this.peek() != 0x22) this.wrong = true;
    const parts: string[] = [];
    for (this.at++; !this.wrong; this.at++) {
      const from = this.at;
      while (this.peek() >= 0x20 && this.peek() != 0x22 && this.peek() != 0x5c) this.at++;
      parts.push(this.text.substring(from, this.at));
      if (this.peek() == 0x22) {
        this.at++;
        return parts.join("");
      }
      if (this.peek() != 0x5c) break;
      this.at++;
      const c = this.peek();
      const i = '"\\/bfnrt'.indexOf(String.fromCharCode(c));
      if (c > 0 && i >= 0) {
        parts.push('"\\/\b\f\n\r\t'.charAt(i));
      } else if (c == 0x75) {
        let unit = 0;
        for (let k = 0; k < 4; k++) {
          this.at++;
          const h = this.peek() | 0x20;
          const digit = h >= 0x61 && h <= 0x66 ? h - 0x57 : this.peek() >= 0x30 && this.peek() <= 0x39 ? this.peek() - 0x30 : -1;
          if (digit < 0) this.wrong = true;
          unit = unit * 16 + digit;
        }
        parts.push(String.fromCharCode(unit));
      } else {
        break;
      }
    }
    this.wrong = true;
    return "";
  }
}
