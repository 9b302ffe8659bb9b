// The world of ACT's tools, act:tools/tool-provider: list-tools describes them, and call-tool
// takes their arguments in CBOR and returns parts of content. Function 0 is list-tools, 1 is
// call-tool.

static void cbor_head(struct body *b, u32 major, u64 v) {
  u8 head[9] = {major << 5 | v};
  u32 n = v < 24 ? 0 : v < 1 << 8 ? 1 : v < 1 << 16 ? 2 : v >> 32 == 0 ? 4 : 8;
  if (n) head[0] = major << 5 | (n == 1 ? 24 : n == 2 ? 25 : n == 4 ? 26 : 27);
  for (u32 i = 0; i < n; i++) head[n - i] = v >> 8 * i;
  add_body(b, head, n + 1);
}

union number {
  double d;
  u64 bits;
};
union short_number {
  float f;
  u32 bits;
};

// add_float writes a float in its shortest width that is exact.
static void add_float(struct body *b, double v) {
  union number wide = {v};
  union short_number narrow = {(float)v};
  double least = (v < 0 ? -v : v) * 16777216; // in units of the smallest float of 16 bits
  u32 sign = wide.bits >> 63 << 15, exponent = narrow.bits >> 23 & 255, width = 8;
  u64 bits = wide.bits;
  if (narrow.f == v) {
    bits = narrow.bits;
    width = 4;
    if (least < 1024 && least == (u32)least) {
      bits = sign | (u32)least;
      width = 2;
    } else if (exponent >= 113 && exponent <= 142 && !(narrow.bits & 0x1fff)) {
      bits = sign | (exponent - 112) << 10 | (narrow.bits >> 13 & 1023);
      width = 2;
    }
  }
  u8 text[9] = {width == 8 ? 0xfb : width == 4 ? 0xfa : 0xf9};
  for (u32 i = 0; i < width; i++) text[width - i] = bits >> 8 * i;
  add_body(b, text, width + 1);
}

// before orders keys: by length, then by bytes.
static u32 before(struct text a, struct text b) {
  u32 i = 0;
  if (a.n != b.n) return a.n < b.n;
  while (i < a.n && a.p[i] == b.p[i]) i++;
  return i < a.n && a.p[i] < b.p[i];
}

// add_cbor writes a value of JSON in CBOR, keys in the order of RFC 8949, 4.2.1.
static const u8 *add_cbor(struct body *b, const u8 *p) {
  struct text t;
  struct decimal d;
  struct body items = {0};
  u32 n = 0, room = 0, c;
  if (*p == '"') {
    if (!(p = read_text(p, &t))) return 0;
    cbor_head(b, 3, t.n);
    add_body(b, t.p, t.n);
  } else if (*p == '[') {
    for (p = space(p + 1); *p != ']'; n++) {
      if (n) p = space(p + 1);
      if (!(p = add_cbor(&items, p))) return 0;
      p = space(p);
    }
    p++;
    cbor_head(b, 4, n);
    add_body(b, items.p, items.n);
  } else if (*p == '{') {
    struct member {
      struct text key;
      const u8 *value;
    } *all = 0, m;
    const u8 *next = p;
    u32 i;
    for (p = space(p + 1); (next = each(next, &m.key)); p = space(next = skip(next))) {
      m.value = next;
      all = grow(all, n, 1, sizeof m, &room);
      for (i = n++; i && before(m.key, all[i - 1].key); i--) all[i] = all[i - 1];
      all[i] = m;
    }
    p++;
    cbor_head(b, 5, n);
    for (i = 0; i < n; i++) {
      cbor_head(b, 3, all[i].key.n);
      add_body(b, all[i].key.p, all[i].key.n);
      if (!add_cbor(b, all[i].value)) return 0;
    }
  } else if (*p == 't' || *p == 'f' || *p == 'n') {
    cbor_head(b, 7, *p == 't' ? 21 : *p == 'f' ? 20 : 22);
    p += *p == 'f' ? 5 : 4;
  } else {
    if (!(p = read_decimal(p, &d))) return 0;
    u64 v = 0;
    for (const u8 *q = d.digits; q < d.end && !d.fraction; q++) {
      c = *q - '0';
      if (v > (~0ull - c) / 10) d.fraction = 1; // too large for an integer
      v = v * 10 + c;
    }
    union number f = {.bits = nearest(&d, 53)};
    if (d.fraction) add_float(b, f.d);
    else cbor_head(b, d.negative && v, v - (d.negative && v));
  }
  return p;
}

static u8 *write_base64(u8 *w, const u8 *p, u32 n) {
  const char *digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  w = room(w, n / 3 * 4 + SLACK);
  *w++ = '"';
  for (u32 i = 0; i < n; i += 3) {
    u32 v = p[i] << 16 | (i + 1 < n ? p[i + 1] : 0) << 8 | (i + 2 < n ? p[i + 2] : 0);
    for (u32 k = 0; k < 4; k++) *w++ = i + k > n ? '=' : digits[v >> (18 - 6 * k) & 63];
  }
  *w++ = '"';
  return w;
}

// write_cbor writes a value of CBOR as JSON: bytes in base64, tags left out.
static u8 *write_cbor(u8 *w, const u8 **at, const u8 *end, u32 depth) {
  const u8 *p = *at;
  if (p >= end || depth > 64) BROKEN("its CBOR is broken or too deep");
  u32 major = *p >> 5, info = *p & 31, n = info < 24 || info > 27 ? 0 : 1 << (info - 24);
  u64 v = n ? 0 : info;
  if (info > 27 || n > end - p - 1) BROKEN("its CBOR is broken");
  for (p++; n; n--) v = v << 8 | *p++;
  w = room(w, SLACK);
  if (major == 2 || major == 3) {
    if (v > end - p) BROKEN("its CBOR is broken");
    w = major == 2 ? write_base64(w, p, v) : write_text(w, p, v);
    p += v;
  } else if (major == 4 || major == 5) {
    *w++ = major == 4 ? '[' : '{';
    for (; v; v--) {
      if (major == 5) {
        if (p < end && *p >> 5 != 3) BROKEN("a key in its CBOR is not a text");
        w = write_cbor(w, &p, end, depth + 1);
        *w++ = ':';
      }
      w = write_cbor(w, &p, end, depth + 1);
      *w++ = ',';
    }
    w -= w[-1] == ',';
    *w++ = major == 4 ? ']' : '}';
  } else if (major == 6) {
    w = write_cbor(w, &p, end, depth + 1);
  } else if (major < 2) {
    if (major && v == ~0ull) w = WRITE(w, "-18446744073709551616");
    else {
      if (major) *w++ = '-';
      w = write_number(w, v + major);
    }
  } else if (info < 24) {
    w = info == 20 ? WRITE(w, "false") : info == 21 ? WRITE(w, "true") : WRITE(w, "null");
  } else {
    union number f = {.bits = v};
    union short_number s = {.bits = v};
    if (info == 26) f.d = s.f;
    if (info == 25) {
      u32 exponent = v >> 10 & 31;
      s.bits = (exponent == 31 ? 255 : exponent + 112) << 23 | (v & 1023) << 13;
      f.d = exponent ? s.f : (v & 1023) / 16777216.0;
      if (v >> 15) f.d = -f.d;
    }
    w = write_any(w, f.bits, 53);
  }
  *at = p;
  return room(w, SLACK);
}

// A text that may be in several languages: the first of them.
static struct text localized(u32 at) {
  u32 pair = AT32(at + 4);
  if (AT8(at) && AT32(at + 8)) {
    in_memory(pair, 16, 4);
    pair += 8;
  } else {
    pair = at + 4;
  }
  in_memory(AT32(pair), AT32(pair + 4), 1);
  return (struct text){(const u8 *)AT32(pair), AT8(at) && !AT32(at + 8) ? 0 : AT32(pair + 4)};
}

static u64 act_failure(u32 error) { // kind, message
  struct text kind = {(const u8 *)AT32(error), AT32(error + 4)}, message = localized(error + 8);
  in_memory(AT32(error), kind.n, 1);
  u8 *w = WRITE(write(begin(), kind.p, kind.n), ": ");
  w = write(w, message.p, message.n);
  return failure(TEXT("tool"), (struct text){out, w - out});
}

static u8 *write_part(u8 *w, u32 part) {
  const u8 *data = (const u8 *)AT32(part);
  u32 n = AT32(part + 4), some = AT8(part + 8);
  struct text type = {(const u8 *)AT32(part + 12), some ? AT32(part + 16) : 0};
  in_memory(AT32(part), n, 1);
  if (some) in_memory(AT32(part + 12), type.n, 1);
  struct text t = {document(type.p, type.n), type.n};
  if (t.n >= 5 && equal(t.p, "text/", 5)) return write_text(w, data, n);
  if (t.n == 16 && equal(t.p, "application/json", 16)) return write(w, data, n);
  if (t.n == 16 && equal(t.p, "application/cbor", 16)) return write_cbor(w, &data, data + n, 0);
  w = WRITE(w, "{\"mime-type\":");
  w = some ? write_text(w, t.p, t.n) : WRITE(w, "null");
  w = write_base64(WRITE(w, ",\"data\":"), data, n);
  return WRITE(w, "}");
}

// act_finish returns the document of what list-tools or call-tool returns.
static u64 act_finish(u32 i, u32 at) {
  u32 list = i ? AT32(at + 4) : AT32(at + 12), n = i ? AT32(at + 8) : AT32(at + 16), size = i ? 32 : 36;
  if (i && AT8(at)) BROKEN("a stream cannot leave the component");
  if (!i && AT8(at)) return act_failure(at + 4);
  in_memory(list, (u64)n * size, 4);
  for (u32 k = 0; i && k < n; k++)
    if (AT8(list + k * size)) return act_failure(list + k * size + 4);
  u8 *w = i ? WRITE(begin(), "{\"output\":") : WRITE(begin(), "{\"tools\":[");
  if (i && n != 1) w = WRITE(w, "[");
  for (u32 k = 0; k < n; k++, list += size) {
    if (k) w = WRITE(w, ",");
    if (i) {
      w = write_part(room(w, SLACK), list + 4);
      continue;
    }
    for (u32 pair = list; pair <= list + 20; pair += 20) in_memory(AT32(pair), AT32(pair + 4), 1);
    u32 metadata = AT32(list + 28), harmless = 0;
    in_memory(metadata, 16 * (u64)AT32(list + 32), 4);
    for (u32 m = metadata; m < metadata + 16 * AT32(list + 32); m += 16) {
      struct text key = {(const u8 *)AT32(m), AT32(m + 4)};
      in_memory(AT32(m), key.n, 1);
      in_memory(AT32(m + 8), AT32(m + 12), 1);
      harmless |= same_name(key, TEXT("std:idempotent")) && AT32(m + 12) == 1 && AT8(AT32(m + 8)) == 0xf5;
    }
    w = write_text(WRITE(w, "{\"name\":"), (const u8 *)AT32(list), AT32(list + 4));
    w = write_description(WRITE(w, ",\"description\":"), localized(list + 8));
    w = write_schema(WRITE(w, ",\"input_schema\":"), (struct text){document((void *)AT32(list + 20), AT32(list + 24)), AT32(list + 24)});
    w = harmless ? WRITE(w, ",\"idempotent\":true}") : WRITE(w, "}");
  }
  if (!i || n != 1) w = WRITE(w, "]");
  return packed(WRITE(w, "}"));
}

static u64 act_call(u32 i, u64 *slots) {
  u64 result = 0;
  task = function(i);
  link_call(i, slots, &result);
  if (!task_document) BROKEN("a task ends without a result");
  return task_document;
}

EXPORT("act_task_return") void act_task_return(u64 *slots) {
  if (!task || task_document) BROKEN("a task returns twice");
  task_document = act_finish(task - function(0), lift(task, slots));
}

EXPORT("act_describe") u64 act_describe(void) {
  callee = 0;
  function(0);
  return act_call(0, (u64[2]){value_memory(0, 16, 4), 0});
}

EXPORT("act_execute") u64 act_execute(u8 *p, u32 n) {
  const u8 *input = begin_request(p, n);
  struct body arguments = {0};
  if (!input || !(request = add_cbor(&arguments, input))) return failure(TEXT("discard"), TEXT("there is no input"));
  read_request(1);
  callee = 1;
  u32 name = value_memory(tool.n, 1, 1), bytes = value_memory(arguments.n, 1, 1);
  copy(name, tool.p, tool.n);
  copy(bytes, arguments.p, arguments.n);
  return act_call(1, (u64[6]){name, tool.n, bytes, arguments.n, value_memory(0, 16, 4), 0});
}
