// What there is of text in a language without Intl: that of en-US. Everything else is an error, and
// not another text than Node's.

const refuse = (method, what) => { throw new TypeError(`${method}: ${what} needs Intl, which a tool does not have: only the form of en-US is there`); };

// check refuses languages but en-US, and options but those in known, each with its test.
function check(method, locales, options, known) {
  for (const locale of [locales ?? []].flat()) if (!/^en(-US)?$/.test(locale)) refuse(method, `the locale ${String(locale)}`);
  for (const [name, value] of Object.entries(options ?? {})) {
    if (value !== undefined && !known[name]?.(value)) refuse(method, `the option ${name}: ${String(value)}`);
  }
  return options ?? {};
}

const one = (...values) => (value) => values.includes(value);
const count = (value) => Number.isInteger(value) && value >= 0 && value <= 100;
const currencies = { USD: ["$", 2], EUR: ["€", 2], GBP: ["£", 2], JPY: ["¥", 0], INR: ["₹", 2], CNY: ["CN¥", 2], KRW: ["₩", 0], CAD: ["CA$", 2], AUD: ["A$", 2], MXN: ["MX$", 2], BRL: ["R$", 2] };
const numbers = {
  minimumFractionDigits: count, maximumFractionDigits: count, useGrouping: one(true, false), style: one("decimal", "percent", "currency"),
  currency: (code) => Object.hasOwn(currencies, code), currencyDisplay: one("symbol"), notation: one("standard"),
};

// number returns a number in groups of three digits.
function number(value, locales, options, method) {
  const o = check(method, locales, options, numbers), { style = "decimal", useGrouping = true } = o;
  if (style === "currency" && !o.currency) throw new TypeError("Currency code is required with currency style.");
  const [symbol, cents] = style === "currency" ? currencies[o.currency] : ["", undefined];
  let least = o.minimumFractionDigits, most = o.maximumFractionDigits;
  if (least > most) throw new RangeError("maximumFractionDigits value is out of range.");
  const [usually, atMost] = [cents ?? 0, cents ?? (style === "percent" ? 0 : 3)];
  least ??= Math.min(usually, most ?? usually);
  most ??= Math.max(atMost, least);
  const negative = value < 0 || Object.is(value, -0);
  const text = Number.isNaN(value) ? "NaN" : value === Infinity || value === -Infinity ? "∞" : decimal(value, style === "percent" ? 2 : 0, least, most, useGrouping);
  return `${negative ? "-" : ""}${symbol}${text}${style === "percent" ? "%" : ""}`;
}

// decimal rounds the shortest decimal that is the number, times a power of ten, half away from zero.
function decimal(value, power, least, most, grouped) {
  const [, whole, fraction = "", exponent = "0"] = /^-?(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value));
  const digits = whole + fraction, point = whole.length + Number(exponent) + power; // of the digits before the point
  const kept = point + most; // digits that are kept
  const shown = kept < 0 ? "" : digits.slice(0, kept).padEnd(kept, "0");
  let n = BigInt(shown || 0);
  if (kept >= 0 && digits[kept] >= "5") n++;
  const padded = String(n).padStart(most + 1, "0");
  let after = padded.slice(padded.length - most).slice(0, most);
  while (after.length > least && after.endsWith("0")) after = after.slice(0, -1);
  const before = padded.slice(0, padded.length - most);
  return (grouped ? before.replace(/\B(?=(\d{3})+$)/g, ",") : before) + (after && `.${after}`);
}

const UTC = { timeZone: one("UTC", "GMT", "Etc/UTC") };

function date(value, locales, options, method, parts) {
  check(method, locales, options, UTC);
  if (Number.isNaN(value.getTime())) return "Invalid Date";
  if (value.getUTCFullYear() < 1) refuse(method, "a date before the year 1");
  const two = (n) => String(n).padStart(2, "0"), hour = value.getUTCHours();
  const text = {
    date: `${value.getUTCMonth() + 1}/${value.getUTCDate()}/${value.getUTCFullYear()}`,
    time: `${hour % 12 || 12}:${two(value.getUTCMinutes())}:${two(value.getUTCSeconds())} ${hour < 12 ? "AM" : "PM"}`,
  };
  return parts.map((part) => text[part]).join(", ");
}

// Order of text, as the root of CLDR has it: letters and signs, then accents, then small before large.
const order = "\t\n\v\f\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz";
const marks = "\u0301\u0300\u0306\u0302\u030c\u030a\u0308\u030b\u0303\u0307\u0328\u0327\u0304";

function weights(text, numeric, method) {
  const first = [], second = [], third = [];
  for (const char of text.normalize("NFD")) {
    const mark = marks.indexOf(char), small = char.toLowerCase(), at = order.indexOf(small);
    if (mark >= 0 && first.length > 0) second[second.length - 1] = second.at(-1) * 16 + mark + 1;
    else if (at < 0 || char > "~") refuse(method, `the order of ${JSON.stringify(char)}`);
    else {
      const digit = small >= "0" && small <= "9", base = order.indexOf("0");
      if (numeric && digit && first.at(-1)?.digits) first.at(-1).digits += small;
      else {
        first.push(numeric && digit ? { digits: small, at: base } : { at });
        second.push(0);
        third.push(char === small ? 0 : 1);
      }
    }
  }
  return [first, second, third];
}

function compareFirst(a, b) {
  if (!a.digits || !b.digits) return a.at - b.at;
  const [x, y] = [BigInt(a.digits), BigInt(b.digits)];
  return x < y ? -1 : x > y ? 1 : 0;
}

function compare(a, b, locales, options) {
  const { numeric = false, sensitivity = "variant" } = check("localeCompare", locales, options, { numeric: one(true, false), sensitivity: one("base", "accent", "variant"), usage: one("sort") });
  if (a === b) return 0;
  const [x, y] = [a, b].map((text) => weights(text, numeric, "localeCompare"));
  for (let level = 0; level < { base: 1, accent: 2, variant: 3 }[sensitivity]; level++) {
    const difference = level === 0 ? compareFirst : (a, b) => a - b;
    for (let i = 0; i < Math.max(x[level].length, y[level].length); i++) {
      if (i >= x[level].length || i >= y[level].length) return x[level].length - y[level].length < 0 ? -1 : 1;
      const sign = difference(x[level][i], y[level][i]);
      if (sign !== 0) return sign < 0 ? -1 : 1;
    }
  }
  return 0;
}

/** localize defines the methods that depend on a language. */
export function localize(define) {
  const dated = (parts, method) => ({ [method](locales, options) { return date(this, locales, options, method, parts); } })[method];
  const listed = { toLocaleString(locales, options) { return Array.from(this, (item) => item?.toLocaleString(locales, options) ?? "").join(","); } };
  const cased = (method) => {
    const plain = String.prototype[method.replace("Locale", "")];
    return { [method](locales) {
      for (const locale of [locales ?? []].flat()) if (/^(tr|az|lt)\b/i.test(locale)) refuse(method, `the locale ${locale}`);
      return plain.call(this);
    } }[method];
  };
  for (const type of [Number, BigInt]) define({ toLocaleString(locales, options) { return number(this.valueOf(), locales, options, "toLocaleString"); } }, type.prototype);
  define({ toLocaleString: dated(["date", "time"], "toLocaleString"), toLocaleDateString: dated(["date"], "toLocaleDateString"), toLocaleTimeString: dated(["time"], "toLocaleTimeString") }, Date.prototype);
  define(listed, Array.prototype);
  define(listed, Object.getPrototypeOf(Uint8Array.prototype));
  define({
    localeCompare(other, locales, options) { return compare(String(this), String(other), locales, options); },
    toLocaleUpperCase: cased("toLocaleUpperCase"), toLocaleLowerCase: cased("toLocaleLowerCase"),
  }, String.prototype);
}
