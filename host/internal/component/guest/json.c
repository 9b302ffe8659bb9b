// JSON: finding members, strings both ways, and the room that a document is written to. The
// host has checked the documents that are read; what follows them is a zero byte and some
// bytes of slack. A reader returns where it ended, or 0.

SLOW static const u8 *more_space(const u8 *p) {
  while ((u8)(*p - 1) < ' ') p++;
  return p;
}
static inline const u8 *space(const u8 *p) { return *p > ' ' ? p : more_space(p); }

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

// character returns the bytes of the character beyond ASCII that w begins with, or 0 if it is
// not UTF-8.
static u32 character(u32 w) {
  u32 top;
  if ((w & 0xc0c0f0) == 0x8080e0) return (top = w & 0x200f) && top != 0x200d ? 3 : 0; // no short form, no surrogate
  if ((w & 0xc0e0) == 0x80c0) return w & 0x1e ? 2 : 0;
  top = (w & 7) << 2 | (w >> 12 & 3); // of 16 planes behind the first
  return (w & 0xc0c0c0f8) == 0x808080f0 && top - 1 < 16 ? 4 : 0;
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

// Letters behind a backslash, and what they mean.
static const u8 escapes[][2] = {"n\n", "\"\"", "\\\\", "t\t", "r\r", "b\b", "f\f", "//"};
enum { ESCAPES = sizeof escapes / sizeof *escapes };

// escape reads what follows a backslash.
static const u8 *escape(const u8 *p, u32 *c) {
  for (u32 i = 0; i < ESCAPES; i++)
    if (escapes[i][0] == *p) {
      *c = escapes[i][1];
      return p + 1;
    }
  if (*p++ != 'u') return 0;
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
    while (*p >= 0x80) {
      if (!(c = character(AT32(p)))) return 0;
      p += c;
    }
    if (*p == '"') break;
    if (*p == '\\') {
      const u8 *from = p;
      if (!(p = escape(p + 1, &c))) return 0;
      saved += p - from - (c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
    } else if (*p < ' ') {
      return 0;
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
    while (p < end && *p != '\\') p = *p >= 0x80 ? p + 1 : plain(p);
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

// named reads a name and the colon behind it.
static const u8 *named(const u8 *p, struct text *key) {
  p = read_text(p, key);
  if (!p) return 0;
  p = space(p);
  return *p == ':' ? space(p + 1) : 0;
}

// each goes through the members of an object: p is at its brace, or behind a value. It
// returns where the value of the next one is, or 0.
static const u8 *each(const u8 *p, struct text *key) {
  p = space(p);
  return *p == '{' || *p == ',' ? named(space(p + 1), key) : 0;
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

// A string and a name leave as much room as the parts of a value need that do not ask for it:
// a number, and the ends of all types that it is in.
enum { SLACK = 160 };

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

static u32 character_before(const u8 *p, const u8 *end) {
  if (end - p >= 4) return character(AT32(p));
  u32 w = 0;
  for (u32 i = 0; i < (u32)(end - p); i++) w |= p[i] << 8 * i;
  return character(w);
}

// write_text writes a string, which has to be UTF-8.
static u8 *write_text(u8 *w, const u8 *p, u32 n) {
  const u8 *end = p + n, *from = p;
  w = room(w, n + SLACK);
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
      if (!(c = character_before(p, end))) BROKEN("a string is not UTF-8");
      p += c;
      continue;
    }
    if (c >= ' ' && c != '"' && c != '\\') {
      p++;
      continue;
    }
    copy(w, from, p - from);
    w = room(w + (p - from), (end - p) + SLACK);
    from = ++p;
    *w++ = '\\';
    u32 i = 0;
    while (i < ESCAPES && escapes[i][1] != c) i++;
    if (i < ESCAPES) {
      *w++ = escapes[i][0];
    } else {
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
