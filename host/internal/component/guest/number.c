// Floats as decimal text and back, both exact: reading rounds to the nearest float, ties to
// even, and writing gives the shortest text that reads as the same float, in the form of
// ECMAScript. Both work with 128 bits of a power of ten.

static void multiply(u64 a, u64 b, u64 *high, u64 *low) {
  u64 al = (u32)a, ah = a >> 32, bl = (u32)b, bh = b >> 32;
  u64 ll = al * bl, lh = al * bh, hl = ah * bl, middle = (ll >> 32) + (u32)lh + hl;
  *low = middle << 32 | (u32)ll;
  *high = ah * bh + (lh >> 32) + (middle >> 32);
}

// The first bits of 10^i and of 10^(28 * (i - 13)). The former are exact.
static const u64 fine[28] = {
    0x8000000000000000, 0xa000000000000000, 0xc800000000000000, 0xfa00000000000000, 0x9c40000000000000, 0xc350000000000000, 0xf424000000000000,
    0x9896800000000000, 0xbebc200000000000, 0xee6b280000000000, 0x9502f90000000000, 0xba43b74000000000, 0xe8d4a51000000000, 0x9184e72a00000000,
    0xb5e620f480000000, 0xe35fa931a0000000, 0x8e1bc9bf04000000, 0xb1a2bc2ec5000000, 0xde0b6b3a76400000, 0x8ac7230489e80000, 0xad78ebc5ac620000,
    0xd8d726b7177a8000, 0x878678326eac9000, 0xa968163f0a57b400, 0xd3c21bcecceda100, 0x84595161401484a0, 0xa56fa5b99019a5c8, 0xcecb8f27f4200f3a,
};
static const struct { u64 high, middle; u32 low; } coarse[25] = {
    {0xe1afa13afbd14d6d, 0x82189c09a3a1ec21, 0x7a435162}, {0xe3e27a444d8d98b7, 0xfd1b1b2308169b25, 0x363b1f2c}, {0xe61acf033d1a45df, 0x6fb92487298e33bd, 0xadd7728c},
    {0xe858ad248f5c22c9, 0xd1b3400f8f9cff68, 0xf910f9f6}, {0xea9c227723ee8bcb, 0x465e15a979c1cadc, 0x0a0ce827}, {0xece53cec4a314ebd, 0xa4f8bf5635246428, 0x4609ac5c},
    {0xef340a98172aace4, 0x86fb897116c87c34, 0x9c39c1da}, {0xf18899b1bc3f8ca1, 0xdc44e6c3cb279ac1, 0xf80f3617}, {0xf3e2f893dec3f126, 0x5a89dba3c3efccfa, 0xd8ecb586},
    {0xf64335bcf065d37d, 0x4d4617b5ff4a16d5, 0xaa09501d}, {0xf8a95fcf88747d94, 0x75a44c6397ce912a, 0x33cca6c0}, {0xfb158592be068d2e, 0xeed6e2f0f0d56712, 0xac2e4f16},
    {0xfd87b5f28300ca0d, 0x8bca9d6e188853fc, 0x76dcb600}, {0x8000000000000000, 0x0000000000000000, 0x00000000}, {0x813f3978f8940984, 0x4000000000000000, 0x00000000},
    {0x82818f1281ed449f, 0xbff8f10e7a8921a4, 0x20000000}, {0x83c7088e1aab65db, 0x792667c6da79e0fa, 0x0861d3ee}, {0x850fadc09923329e, 0x03e2cf6bc604ddb0, 0x74a7ef01},
    {0x865b86925b9bc5c2, 0x0b8a2392ba45a9b2, 0x5c6658d4}, {0x87aa9aff79042286, 0x90fb44d2f05d0842, 0xfb118fc9}, {0x88fcf317f22241e2, 0x441fece3bdf81f03, 0x12f27492},
    {0x8a5296ffe33cc92f, 0x82bd6b70d99aaa6f, 0xbc10c5c5}, {0x8bab8eefb6409c1a, 0x1ad089b6c2f7548e, 0x25c7b885}, {0x8d07e33455637eb2, 0xdb0b487b6423e1e8, 0x7ec63730},
    {0x8e679c2f5e44ff8f, 0x570f09eaa7ea7648, 0x5961db50},
};

// power gives the first 128 bits of 10^k, for k of -364 to 335, rounded down. They are all of
// it for k of 0 to 55.
static void power(i32 k, u64 *high, u64 *low) {
  u32 j = (u32)(k + 364) / 28;
  u64 f = fine[k + 364 - 28 * j], h0, h1, h2, l0, l1, l2;
  multiply(coarse[j].high, f, &h0, &l0);
  multiply(coarse[j].middle, f, &h1, &l1);
  multiply((u64)coarse[j].low << 32, f, &h2, &l2);
  l1 += h2;
  h1 += l1 < h2;
  l0 += h1;
  h0 += l0 < h1;
  if (!(h0 >> 63)) {
    h0 = h0 << 1 | l0 >> 63;
    l0 = l0 << 1 | l1 >> 63;
  }
  *high = h0;
  *low = l0;
}

// exponent is the largest e with 2^e <= 10^k.
static i32 exponent(i32 k) { return (k * 217706) >> 16; }

// A large natural number, for decimals so close to the middle of two floats that 128 bits do
// not tell on which side they are.
struct large {
  u32 n, digits[160];
};

static void times(struct large *a, u32 factor, u32 carry) {
  u64 c = carry;
  for (u32 i = 0; i < a->n; i++) {
    c += (u64)a->digits[i] * factor;
    a->digits[i] = c;
    c >>= 32;
  }
  if (c) a->digits[a->n++] = c;
}

static void times_power(struct large *a, u32 fives, u32 twos) {
  for (; fives >= 13; fives -= 13) times(a, 1220703125, 0);
  for (; fives; fives--) times(a, 5, 0);
  for (; twos >= 31; twos -= 31) times(a, 1u << 31, 0);
  times(a, 1u << twos, 0);
}

static i32 compare(const struct large *a, const struct large *b) {
  if (a->n != b->n) return a->n < b->n ? -1 : 1;
  for (u32 i = a->n; i--;)
    if (a->digits[i] != b->digits[i]) return a->digits[i] < b->digits[i] ? -1 : 1;
  return 0;
}

// A decimal as it is written: the digits from "digits" to "end", a point perhaps among them,
// of which the first 19 or less are "value", times 10^scale.
struct decimal {
  const u8 *digits, *end;
  u64 value;
  i32 scale;
  u8 negative, fraction, cut; // it has a point or an exponent; it has more digits
};

// against compares a decimal to middle * 2^scale.
static i32 against(const struct decimal *d, u64 middle, i32 scale) {
  struct large a = {0}, b = {2, {middle, middle >> 32}};
  i32 tens = d->scale; // of the value, which is of the first digits
  u32 n = 0, value_digits = 0, rest = 0;
  for (u64 v = d->value; v; v /= 10) value_digits++;
  for (const u8 *p = d->digits; p < d->end; p++) {
    u32 c = *p - '0';
    if (c > 9 || (!n && !c)) continue; // 768 digits tell any middle from its neighbours
    if (n < 768) {
      times(&a, 10, c);
      n++;
    } else {
      rest |= c;
    }
  }
  if (rest) {
    times(&a, 10, 1);
    n++;
  }
  tens -= n - value_digits;
  i32 twos = tens - scale;
  times_power(tens < 0 ? &b : &a, tens < 0 ? -tens : tens, 0);
  times_power(twos < 0 ? &b : &a, 0, twos < 0 ? -twos : twos);
  while (b.n && !b.digits[b.n - 1]) b.n--;
  return compare(&a, &b);
}

// read_decimal reads a number of JSON, and returns its end, or 0.
static const u8 *read_decimal(const u8 *p, struct decimal *d) {
  u32 digits = 0, c;
  i32 scale = 0;
  u64 value = 0;
  d->negative = *p == '-';
  p += d->negative;
  d->digits = p;
  d->fraction = d->cut = 0;
  if (*p - '0' > 9u) return 0;
  for (;; p++) {
    if ((c = *p - '0') > 9) {
      if (*p != '.' || d->fraction) break;
      d->fraction = 1;
      continue;
    }
    if (digits < 19) {
      value = value * 10 + c;
      digits += value != 0;
      scale -= d->fraction;
    } else {
      d->cut |= c != 0;
      scale += 1 - d->fraction;
    }
  }
  d->end = p;
  if ((*p | 32) == 'e') {
    d->fraction = 1;
    i32 e = 0, minus = *++p == '-';
    p += minus || *p == '+';
    if (*p - '0' > 9u) return 0;
    for (; (c = *p - '0') <= 9; p++)
      if (e < 10000000) e = e * 10 + c;
    scale += minus ? -e : e;
  }
  d->value = value;
  d->scale = scale;
  return p;
}

// nearest returns the bits of the float of a decimal: of 64 bits if precision is 53, of 32 if
// it is 24.
static u64 nearest(const struct decimal *d, u32 precision) {
  i32 lowest = precision == 53 ? -1074 : -149; // the exponent of the smallest float
  u64 sign = (u64)d->negative << (precision == 53 ? 63 : 31), infinite = (u64)(precision == 53 ? 2047 : 255) << (precision - 1);
  if (!d->value || d->scale < -343) return sign;
  if (d->scale > 308) return sign | infinite;
  // A quotient of two exact floats is rounded once.
  if (d->value >> precision == 0 && d->scale <= 0 && d->scale >= (precision == 53 ? -22 : -10) && !d->cut) {
    union { double d; u64 bits; } v = {1};
    for (i32 i = d->scale; i < 0; i++) v.d *= 10;
    if (precision == 24) {
      union { float f; u32 bits; } w = {(float)d->value / (float)v.d};
      return sign | w.bits;
    }
    v.d = (double)d->value / v.d;
    return sign | v.bits;
  }
  // The first 192 bits of the product are in h, m and rest. It is exact, or less than 2 too
  // small in m, or less than 2 << shift too small in h if digits are cut.
  u64 gh, gl, h, m, carry, rest;
  u32 shift = __builtin_clzll(d->value), exact = d->scale >= 0 && d->scale <= 55 && !d->cut;
  power(d->scale, &gh, &gl);
  multiply(d->value << shift, gh, &h, &m);
  multiply(d->value << shift, gl, &carry, &rest);
  m += carry;
  h += m < carry;
  u32 top = 63 - __builtin_clzll(h), keep = precision;
  i32 least = exponent(d->scale) + 1 - (i32)shift + (i32)top - (i32)precision + 1; // of the last bit kept
  if (least < lowest) {
    if (lowest - least > (i32)precision + 1) return sign;
    if (lowest - least > (i32)precision) return sign | (against(d, 1, lowest - 1) > 0); // h may be too small
    keep -= lowest - least;
    least = lowest;
  }
  u32 drop = top + 1 - keep, up; // bits of h: 10 or more
  u64 kept = drop == 64 ? 0 : h >> drop, below = drop == 64 ? h : h & ((1ull << drop) - 1), half = 1ull << (drop - 1);
  u64 error = d->cut ? 2ull << shift : m >= -2ull;
  if (exact)
    up = below > half || (below == half && (m | rest || kept & 1));
  else if (below > half || (below == half && m))
    up = 1;
  else if (below + error < half)
    up = 0;
  else {
    i32 side = against(d, kept * 2 + 1, least - 1);
    up = side > 0 || (side == 0 && kept & 1);
  }
  kept += up;
  // A carry leads to the next exponent, as the bits of floats are ordered.
  u64 bits = ((u64)(least - lowest) << (precision - 1)) + kept;
  if (bits > infinite) bits = infinite;
  return sign | bits;
}

// shortest finds the decimal of the fewest digits that is read as c * 2^q, and of these the
// nearest (Raffaello Giulietti: The Schubfach way to render doubles). In that of the next
// power, the lower neighbour of c is half as far away.
static u64 shortest(u64 c, i32 q, u32 closer, i32 *scale) {
  i32 k = (q * 1262611 - (closer ? 524031 : 0)) >> 22;
  u32 shift = q + exponent(-k) + 1;
  u64 gh, gl, y1, y0, x1, x0;
  power(-k, &gh, &gl);
  if ((k > 0 || k < -55) && !++gl) gh++; // rounded up
  multiply(c << (2 + shift), gh, &y1, &y0);
  multiply(c << (2 + shift), gl, &x1, &x0);
  y0 += x1;
  y1 += y0 < x1;
  // half the way to a neighbour, in three words
  u64 d0 = gl << (shift + 1), d1 = gh << (shift + 1) | gl >> (63 - shift), d2 = gh >> (63 - shift);
  u64 r0 = x0 + d0, r1 = y0 + d1, r2 = y1 + d2;
  r2 += r1 < d1;
  r1 += r0 < d0;
  r2 += !r1 && r0 < d0;
  if (closer) {
    d0 = d0 >> 1 | d1 << 63;
    d1 = d1 >> 1 | d2 << 63;
    d2 >>= 1;
  }
  u64 l1 = y0 - d1, l2 = y1 - d2 - (y0 < d1);
  if (x0 < d0) l2 -= l1-- == 0;
  u64 odd = c & 1, value = y1 | (y0 > 1), lower = (l2 | (l1 > 1)) + odd, upper = (r2 | (r1 > 1)) - odd;
  u64 s = value / 4;
  *scale = k;
  if (s >= 10) {
    u64 tens = s / 10;
    u32 down = lower <= 40 * tens, up = 40 * tens + 40 <= upper;
    if (down != up) {
      *scale = k + 1;
      return tens + up;
    }
  }
  u32 down = lower <= 4 * s, up = 4 * s + 4 <= upper;
  if (down != up) return s + up;
  u64 middle = 4 * s + 2;
  return s + (value > middle || (value == middle && s & 1));
}

static u32 count_digits(u64 v) {
  u32 n = 1;
  for (; v >= 10000; v /= 10000) n += 4;
  return n + (v >= 10) + (v >= 100) + (v >= 1000);
}

// write_number writes an integer, in as many digits as it has or is said.
static u8 *write_digits(u8 *to, u64 v, u32 n) {
  u8 *p = to + n;
  while (v >> 32) {
    u64 rest = v / 100000000;
    u32 eight = v - rest * 100000000;
    v = rest;
    for (u32 i = 0; i < 8; i++) {
      u32 tenth = (u64)eight * 3435973837 >> 35;
      *--p = '0' + eight - tenth * 10;
      eight = tenth;
    }
  }
  for (u32 w = v; p > to; ) {
    u32 tenth = (u64)w * 3435973837 >> 35;
    *--p = '0' + w - tenth * 10;
    w = tenth;
  }
  return to + n;
}

static u8 *write_number(u8 *to, u64 v) {
  if (v >= 10) return write_digits(to, v, count_digits(v));
  *to = '0' + v;
  return to + 1;
}

// write_float writes a float that is a number: c * 2^q, at most 25 bytes. One without fraction
// ends in ".0", so that it is not an integer.
static u8 *write_float(u8 *to, u64 bits, u32 precision) {
  u32 width = precision == 53 ? 64 : 32;
  u64 fraction = bits & ((1ull << (precision - 1)) - 1);
  u32 biased = bits >> (precision - 1) & (precision == 53 ? 2047 : 255);
  if (bits >> (width - 1)) *to++ = '-';
  if (!fraction && !biased) {
    copy(to, "0.0", 3);
    return to + 3;
  }
  u64 c = biased ? fraction | 1ull << (precision - 1) : fraction;
  i32 q = (i32)(biased ? biased : 1) - (precision == 53 ? 1075 : 150), scale = 0;
  union { double d; u64 bits; } wide = {.bits = bits & ~(1ull << 63)};
  union { float f; u32 bits; } narrow = {.bits = (u32)bits & ~(1u << 31)};
  // A decimal of at most 15 digits (6 for 32 bits) that reads as the float is the only one, but
  // for zeros at its end.
  u64 v = precision == 53 ? wide.d < 1e9 ? wide.d * 1e6 + 0.5 : 0 : narrow.f < 1e3f ? narrow.f * 1e3f + 0.5f : 0;
  if (v && precision == 53 && (double)v / 1e6 == wide.d)
    scale = -6;
  else if (v && precision == 24 && (float)v / 1e3f == narrow.f)
    scale = -3;
  else if (q <= 0 && q > -(i32)precision && !(c & ((1ull << -q) - 1)))
    v = c >> -q;
  else
    v = shortest(c, q, !fraction && biased > 1, &scale);
  while (v >= 10) {
    u64 tenth = v / 10;
    if (v != tenth * 10) break;
    v = tenth;
    scale++;
  }
  i32 n = count_digits(v), point = n + scale; // 0.v * 10^point
  if (point > 0 && point <= 21) {
    if (scale >= 0) {
      to = write_digits(to, v, n);
      for (; scale > 0; scale--) *to++ = '0';
      *to++ = '.';
      *to++ = '0';
      return to;
    }
    u8 *end = write_digits(to + 1, v, n);
    for (i32 i = 0; i < point; i++) to[i] = to[i + 1];
    to[point] = '.';
    return end;
  }
  if (point <= 0 && point > -6) {
    *to++ = '0';
    *to++ = '.';
    for (; point < 0; point++) *to++ = '0';
    return write_digits(to, v, n);
  }
  u8 *end = write_digits(to + 1, v, n);
  to[0] = to[1];
  if (n > 1) to[1] = '.';
  else end = to + 1;
  *end++ = 'e';
  *end++ = point > 0 ? '+' : '-';
  return write_number(end, point > 0 ? point - 1 : 1 - point);
}
