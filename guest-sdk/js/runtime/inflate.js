// What undoes a content coding: gzip (RFC 1952) and deflate (RFC 1950 and 1951).

const malformed = () => { throw new TypeError("the compressed body is malformed, or is cut"); };

// The lengths and distances of RFC 1951, section 3.2.5: the first of each symbol, with so
// many bits behind it.
const lengthBits = (i) => (i < 8 || i === 28 ? 0 : (i >> 2) - 1);
const distanceBits = (i) => (i < 2 ? 0 : (i >> 1) - 1);
const firsts = (n, first, bits) => Array.from({ length: n }, (_, i) => [first, first += 1 << bits(i)][0]);
const lengths = [...firsts(28, 3, lengthBits), 258];
const distances = firsts(30, 1, distanceBits);
const order = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15]; // section 3.2.7
const fixed = Uint8Array.from({ length: 288 }, (_, i) => (i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8));

// codes returns, for the next bits of the input, the symbol that they begin with and its length.
function codes(sizes) {
  const most = Math.max(1, ...sizes), table = new Uint16Array(1 << most);
  for (let size = 1, code = 0; size <= most; size++, code <<= 1) {
    for (let symbol = 0; symbol < sizes.length; symbol++) {
      if (sizes[symbol] !== size) continue;
      if (code >> size) malformed();
      let place = 0;
      for (let i = 0; i < size; i++) place |= ((code >> i) & 1) << (size - 1 - i);
      for (; place < table.length; place += 1 << size) table[place] = (symbol << 4) | size;
      code++;
    }
  }
  return { table, most };
}

/** inflate returns what the bytes stand for, and where they end. */
export function inflate(bytes, at) {
  let out = new Uint8Array(Math.max(1024, bytes.length * 4)), length = 0, hold = 0, held = 0;
  const need = (n) => {
    for (; held < n; held += 8) hold |= bytes[at++] << held; // beyond the end there are zeros
    if (at - (held >> 3) > bytes.length) malformed();
  };
  const take = (n) => {
    need(n);
    const value = hold & ((1 << n) - 1);
    hold >>>= n;
    held -= n;
    return value;
  };
  const next = ({ table, most }) => {
    need(most);
    const entry = table[hold & (table.length - 1)], size = entry & 15;
    if (size === 0) malformed();
    hold >>>= size;
    held -= size;
    return entry >> 4;
  };
  const room = (n) => {
    if (length + n <= out.length) return;
    const larger = new Uint8Array(2 * (length + n));
    larger.set(out);
    out = larger;
  };
  for (let last = 0; !last;) {
    last = take(1);
    const kind = take(2);
    if (kind === 3) malformed();
    if (kind === 0) {
      at -= held >> 3;
      hold = held = 0;
      const n = bytes[at] | (bytes[at + 1] << 8);
      if (!(at + 4 + n <= bytes.length)) malformed();
      room(n);
      out.set(bytes.subarray(at + 4, at + 4 + n), length);
      at += 4 + n;
      length += n;
      continue;
    }
    let symbols = fixed, places = new Uint8Array(30).fill(5);
    if (kind === 2) {
      const n = take(5) + 257, m = take(5) + 1, k = take(4) + 4, sizes = new Uint8Array(19), all = new Uint8Array(n + m);
      for (let i = 0; i < k; i++) sizes[order[i]] = take(3);
      const table = codes(sizes);
      for (let i = 0; i < n + m;) {
        const symbol = next(table);
        if (symbol < 16) {
          all[i++] = symbol;
          continue;
        }
        if (symbol === 16 && i === 0) malformed();
        const size = symbol === 16 ? all[i - 1] : 0;
        for (let again = symbol === 16 ? 3 + take(2) : symbol === 17 ? 3 + take(3) : 11 + take(7); again > 0 && i < n + m; again--) all[i++] = size;
      }
      symbols = all.subarray(0, n);
      places = all.subarray(n);
    }
    const letters = codes(symbols), backs = codes(places);
    for (let symbol; (symbol = next(letters)) !== 256;) {
      if (symbol < 256) {
        room(1);
        out[length++] = symbol;
        continue;
      }
      if (symbol > 285) malformed();
      const n = lengths[symbol - 257] + take(lengthBits(symbol - 257)), place = next(backs);
      if (place > 29) malformed();
      const back = distances[place] + take(distanceBits(place));
      if (back > length) malformed();
      room(n);
      for (let i = 0; i < n; i++, length++) out[length] = out[length - back];
    }
  }
  return { out: out.slice(0, length), end: at - (held >> 3) };
}

function gunzip(bytes) {
  const members = [];
  for (let at = 0; at < bytes.length;) {
    if (bytes[at] !== 0x1f || bytes[at + 1] !== 0x8b || bytes[at + 2] !== 8) malformed();
    const flags = bytes[at + 3];
    at += 10;
    if (flags & 4) at += 2 + (bytes[at] | (bytes[at + 1] << 8));
    for (const named of [8, 16]) if (flags & named) while (at < bytes.length && bytes[at++] !== 0);
    if (flags & 2) at += 2;
    const { out, end } = inflate(bytes, at);
    if (end + 8 > bytes.length) malformed();
    members.push(out);
    at = end + 8;
  }
  if (members.length === 1) return members[0];
  const all = new Uint8Array(members.reduce((sum, { length }) => sum + length, 0));
  members.reduce((at, member) => (all.set(member, at), at + member.length), 0);
  return all;
}

const isZlib = (bytes) => (bytes[0] & 15) === 8 && ((bytes[0] << 8) | bytes[1]) % 31 === 0;

/** codings has a function for each content coding that fetch undoes. */
export const codings = {
  identity: (bytes) => bytes,
  gzip: gunzip,
  "x-gzip": gunzip,
  deflate: (bytes) => inflate(bytes, isZlib(bytes) ? 2 : 0).out,
};
