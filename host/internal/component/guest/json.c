// JSON: finding members, strings both ways, and the room that a document is written to. The
// host has checked the documents that are read; what follows them is a zero byte and some
// bytes of slack. A reader returns where it ended, or 0.

static const u8 *space(const u8 *p) {
  while ((u8)(*p - 1) < ' ') p++;
  return p;
}

// marks of the bytes of a word that end a run of plain text: a quote, a backslash, a control
// character, or part of a character beyond ASCII. The first mark is exact.
static u64 marks(u64 w) {
  const u64 all = 0x0101010101010101;
  u64 quote = (w ^ all * '"') + all * 0x7f, slash = (w ^ all * '\\') + all * 0x7f, control = w + all * 0x60;
  return (~(quote & slash & control) | w) & all * 0x80;
}

static const u8 *plain(const u8 *p) {
  u64 m;
  while (!(m = marks(AT64(p)))) p += 8;
  return p + (__builtin_ctzll(m) >> 3);
}

// character returns the bytes of the character beyond ASCII at p, or 0 if it is not UTF-8.
static u32 character(const u8 *p, u32 room) {
  u32 a = p[0];
  if (a < 0xc2 || room < 2) return 0;
  u32 b = p[1];
  if ((b & 0xc0) != 0x80) return 0;
  if (a < 0xe0) return 2;
  if (room < 3 || (p[2] & 0xc0) != 0x80) return 0;
  if (a < 0xf0) return a == 0xe0 && b < 0xa0 ? 0 : a == 0xed && b >= 0xa0 ? 0 : 3;
  if (room < 4 || (p[3] & 0xc0) != 0x80 || a > 0xf4) return 0;
  return a == 0xf0 && b < 0x90 ? 0 : a == 0xf4 && b >= 0x90 ? 0 : 4;
}

static u8 *encode(u8 *to, u32 c) {
  if (c < 0x80) {
    *to++ = c;
  } else if (c < 0x800) {
    *to++ = 0xc0 | c >> 6;
    *to++ = 0x80 | (c & 63);
  } else {
    if (c < 0x10000) {
      *to++ = 0xe0 | c >> 12;
    } else {
      *to++ = 0xf0 | c >> 18;
      *to++ = 0x80 | (c >> 12 & 63);
    }
    *to++ = 0x80 | (c >> 6 & 63);
    *to++ = 0x80 | (c & 63);
  }
  return to;
}

static u32 hex4(const u8 *p) {
  u32 v = 0;
  for (u32 i = 0; i < 4; i++) {
    u32 c = p[i], d = c - '0' < 10 ? c - '0' : (c | 32) - 'a' < 6 ? (c | 32) - 'a' + 10 : 16;
    if (d == 16) return ~0u;
    v = v << 4 | d;
  }
  return v;
}

// escape reads what follows a backslash.
static const u8 *escape(const u8 *p, u32 *c) {
  switch (*p++) {
  case 'n': *c = '\n'; return p;
  case '"': *c = '"'; return p;
  case '\\': *c = '\\'; return p;
  case 't': *c = '\t'; return p;
  case 'r': *c = '\r'; return p;
  case '/': *c = '/'; return p;
  case 'b': *c = '\b'; return p;
  case 'f': *c = '\f'; return p;
  case 'u': break;
  default: return 0;
  }
  u32 v = hex4(p);
  p += 4;
  if (v - 0xd800 < 0x400 && p[0] == '\\' && p[1] == 'u') {
    u32 low = hex4(p + 2) - 0xdc00;
    if (low >= 0x400) return 0;
    v = 0x10000 + ((v - 0xd800) << 10) + low;
    p += 6;
  }
  *c = v;
  return v - 0xd800 < 0x800 || v > 0x10ffff ? 0 : p; // half of a pair
}

// scan finds the end of a string, from behind its quote, and the bytes that it will have.
static const u8 *scan(const u8 *p, u32 *n) {
  const u8 *start = p;
  u32 saved = 0, c;
  for (;;) {
    p = plain(p);
    if (*p == '"') break;
    if (*p == '\\') {
      const u8 *from = p;
      if (!(p = escape(p + 1, &c))) return 0;
      saved += p - from - (c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
    } else {
      u32 k = *p < 0x80 ? 0 : character(p, 4);
      if (!k) return 0;
      p += k;
    }
  }
  *n = p - start - saved;
  return p;
}

// unescape copies what scan has seen.
static void unescape(void *to, const u8 *p, const u8 *end, u32 n) {
  if (end - p == n) {
    copy(to, p, n);
    return;
  }
  u8 *t = to;
  for (;;) {
    const u8 *from = p;
    u32 c;
    while (p < end && *p != '\\') p = plain(p + (*p >= 0x80));
    copy(t, from, p - from);
    t += p - from;
    if (p >= end) return;
    p = escape(p + 1, &c);
    t = encode(t, c);
  }
}

// read_text reads a string to memory of the guest side.
static const u8 *read_text(const u8 *p, struct text *t) {
  const u8 *end;
  if (*p != '"' || !(end = scan(p + 1, &t->n))) return 0;
  t->p = p + 1;
  if (end - t->p != t->n) {
    void *to = alloc(t->n);
    unescape(to, p + 1, end, t->n);
    t->p = to;
  }
  return end + 1;
}

// skip passes over a value.
static const u8 *skip(const u8 *p) {
  u32 depth = 0, n;
  do {
    p = space(p);
    switch (*p) {
    case 0:
      return 0;
    case '"':
      if (!(p = scan(p + 1, &n))) return 0;
      p++;
      break;
    case '{': case '[':
      depth++;
      p++;
      break;
    case '}': case ']':
      depth--;
      p++;
      break;
    case ',': case ':':
      p++;
      break;
    default:
      while (*p > ' ' && *p != ',' && *p != '}' && *p != ']') p++;
    }
  } while (depth);
  return p;
}

static u32 equal(const void *a, const void *b, u32 n) {
  const u8 *x = a, *y = b;
  for (; n >= 8; n -= 8, x += 8, y += 8)
    if (AT64(x) != AT64(y)) return 0;
  return !n || (AT64(x) ^ AT64(y)) << (64 - 8 * n) == 0; // both have slack
}

// each goes through the members of an object: p is at its brace, or behind a value. It
// returns where the value of the next one is, or 0.
static const u8 *each(const u8 *p, struct text *key) {
  p = space(p);
  if (*p != '{' && *p != ',') return 0;
  p = read_text(space(p + 1), key);
  if (!p) return 0;
  p = space(p);
  return *p == ':' ? space(p + 1) : 0;
}

// member returns where the value of a member of an object is, or 0.
static const u8 *member(const u8 *p, struct text name) {
  struct text key;
  if (!p || *p != '{') return 0;
  for (; p && (p = each(p, &key)); p = skip(p))
    if (key.n == name.n && equal(key.p, name.p, name.n)) return p;
  return 0;
}

// What is written goes to one place, which moves when it grows: writers take where to write,
// and return where to go on.
static u8 *out, *out_end;

SLOW static u8 *more_room(u8 *w, u32 n) {
  u32 used = w - out, size = 2 * used + n + 512;
  if (size < used) __builtin_trap();
  u8 *bigger = alloc(size);
  copy(bigger, out, used);
  out = bigger;
  out_end = bigger + size;
  return out + used;
}

static inline u8 *room(u8 *w, u32 n) { return (u32)(out_end - w) >= n ? w : more_room(w, n); }

// begin returns a new place to write to.
static u8 *begin(void) {
  out = alloc(512);
  out_end = out + 512;
  return out;
}

static u8 *write(u8 *w, const void *p, u32 n) {
  w = room(w, n);
  copy(w, p, n);
  return w + n;
}
#define WRITE(w, s) write(w, s, sizeof(s) - 1)

// write_text writes a string, which has to be UTF-8.
static u8 *write_text(u8 *w, const u8 *p, u32 n) {
  const u8 *end = p + n, *from = p;
  w = room(w, n + 2);
  *w++ = '"';
  while (p < end) {
    if (end - p >= 8) {
      u64 m = marks(AT64(p));
      if (!m) {
        p += 8;
        continue;
      }
      p += __builtin_ctzll(m) >> 3;
    }
    u32 c = *p;
    if (c >= 0x80) {
      u32 k = character(p, end - p);
      if (!k) BROKEN("a string is not UTF-8");
      p += k;
      continue;
    }
    if (c >= ' ' && c != '"' && c != '\\') {
      p++;
      continue;
    }
    copy(w, from, p - from);
    w = room(w + (p - from), (end - p) + 7);
    from = ++p;
    *w++ = '\\';
    switch (c) {
    case '"': case '\\': *w++ = c; break;
    case '\n': *w++ = 'n'; break;
    case '\t': *w++ = 't'; break;
    case '\r': *w++ = 'r'; break;
    case '\b': *w++ = 'b'; break;
    case '\f': *w++ = 'f'; break;
    default:
      copy(w, "u00", 3);
      w[3] = '0' + (c >> 4);
      w[4] = (c & 15) < 10 ? '0' + (c & 15) : 'a' + (c & 15) - 10;
      w += 5;
    }
  }
  copy(w, from, p - from);
  w += p - from;
  *w++ = '"';
  return w;
}
