// Values of the component's functions: from JSON to the canonical ABI and back, from memory
// to flat form and back, and from one part of the component to another.

enum kind { BOOL, S8, U8, S16, U16, S32, U32, S64, U64, F32, F64, CHAR, STRING, LIST, RECORD, TUPLE, VARIANT, ENUM, OPTION, RESULT, FLAGS, OWN, BORROW, OTHER };

// The descriptors that the linker writes. Places in them are counted from their beginning.
static u8 *descriptors;
struct row {
  u32 name, name_n, type, offset, sorted;
};
struct node {
  u32 kind, size, align, flat, n, a, b;
  struct row rows[];
};
struct function {
  u32 name, name_n, parameters, result, flags, caller, callee, unused;
};
enum { RESULT_AT_ADDRESS = 1, POST_RETURN = 2, PARAMETERS_AT_ADDRESS = 4, ASYNC = 8 };

static const struct node *node(u32 at) { return (const struct node *)(descriptors + at); }
static const struct function *function(u32 i) {
  if (!descriptors) descriptors = (u8 *)link_descriptors();
  return (const struct function *)(descriptors + ((u32 *)descriptors)[1]) + i;
}

static u32 callee; // the function whose parameters are written
static u32 value_memory(u32 n, u32 size, u32 align) {
  if ((u64)n * size > 0x7fffffff) BROKEN("a list is too long");
  u32 p = link_arg_realloc(callee, align, n * size);
  in_memory(p, n * size, align);
  return p;
}

static u64 load(u32 p, u32 size) { return size == 4 ? AT32(p) : size == 1 ? AT8(p) : size == 8 ? AT64(p) : AT16(p); }
static void store(u32 p, u32 size, u64 v) {
  if (size == 4) AT32(p) = v;
  else if (size == 1) AT8(p) = v;
  else if (size == 8) AT64(p) = v;
  else AT16(p) = v;
}

// Why the input does not fit. The host has checked it with the schema of the same type, so
// this says less than the host.
static struct text why;
SLOW static const u8 *misfit(const char *reason, u32 n) {
  why = (struct text){(const u8 *)reason, n};
  return 0;
}
#define MISFIT(reason) misfit(reason, sizeof(reason) - 1)

// row_of returns the row of a name, or 0. Expected is the place among the sorted names where
// it likely is, and is set to where it is.
static const struct row *row_of(const struct node *t, struct text name, u32 *expected) {
  for (u32 low = 0, high = t->n; low < high;) {
    u32 middle = *expected - low < high - low ? *expected : (low + high) / 2;
    const struct row *r = &t->rows[t->rows[middle].sorted];
    const u8 *a = descriptors + r->name;
    u32 i = 0, n = r->name_n < name.n ? r->name_n : name.n;
    while (i < n && a[i] == name.p[i]) i++;
    if (i == n && r->name_n == name.n) {
      *expected = middle;
      return r;
    }
    if (i == n ? r->name_n < name.n : a[i] < name.p[i]) low = middle + 1;
    else high = middle;
  }
  return 0;
}

// find returns the row of the name at p, or 0. End is set behind the name, and with a value
// behind the colon, where that is; or to 0 if there is no name.
static const struct row *find(const struct node *t, const u8 *p, u32 *expected, const u8 **end, u32 value) {
  struct text name;
  *end = value ? named(p, &name) : read_text(p, &name);
  return *end ? row_of(t, name, expected) : 0;
}

static const u8 *read_value(const struct node *t, u32 to, const u8 *p);

// read_integer reads digits. The host writes integers as fractions too, such as 100.0, but
// none of this size with an exponent.
APART static const u8 *read_integer(const struct node *t, u32 to, const u8 *p) {
  u32 negative = *p == '-', digits = 0, c;
  u64 v = 0;
  for (p += negative; (c = *p - '0') < 10; p++) {
    if (++digits > 19 && v > (~0ull - c) / 10) return MISFIT("the integer is out of range");
    v = v * 10 + c;
  }
  if (*p == '.')
    while (*++p == '0') {}
  if (!digits || *p - '0' < 10u || (*p | 32) == 'e') return MISFIT("an integer is expected");
  if (v < 128 && !negative) { // of any type
    store(to, t->size, v);
    return p;
  }
  u32 bits = 8 * t->size, is_signed = t->kind == S8 || t->kind == S16 || t->kind == S32 || t->kind == S64;
  if (v > (is_signed ? (1ull << (bits - 1)) - 1 + negative : negative ? 0 : ~0ull >> (64 - bits))) return MISFIT("the integer is out of range");
  store(to, t->size, negative ? 0 - v : v);
  return p;
}

APART static const u8 *read_float(const struct node *t, u32 to, const u8 *p) {
  u32 precision = t->kind == F64 ? 53 : 24;
  u64 bits, infinite = precision == 53 ? 0x7ff0000000000000 : 0x7f800000;
  struct decimal d;
  if (*p == '"') {
    struct text s;
    if (!(p = read_text(p, &s))) return MISFIT("a number is expected");
    if (s.n == 3 && equal(s.p, "NaN", 3)) bits = infinite | 1ull << (precision - 2);
    else if (s.n == 8 && equal(s.p, "Infinity", 8)) bits = infinite;
    else if (s.n == 9 && equal(s.p, "-Infinity", 9)) bits = infinite | 1ull << (precision == 53 ? 63 : 31);
    else return MISFIT("a number, \"NaN\", \"Infinity\" or \"-Infinity\" is expected");
  } else {
    if (!(p = read_decimal(p, &d))) return MISFIT("a number is expected");
    if (!d.value && !d.fraction) d.negative = 0; // -0 is the integer zero
    bits = nearest(&d, precision);
    if ((bits & infinite) == infinite) return MISFIT("the number is out of range");
  }
  store(to, t->size, bits);
  return p;
}

APART static const u8 *read_list(const struct node *t, u32 to, const u8 *p) {
  const struct node *item = node(t->a);
  u8 *items = 0; // until their number is known
  u32 n = 0, room = 0;
  for (p = space(p + 1); *p != ']'; n++) {
    if (n && *p != ',') return MISFIT("an array is expected");
    if (n) p = space(p + 1);
    items = grow(items, n, 1, item->size, &room);
    if (!(p = read_value(item, (u32)items + n * item->size, p))) return 0;
    p = space(p);
  }
  AT32(to) = value_memory(n, item->size, item->align);
  AT32(to + 4) = n;
  copy(AT32(to), items, n * item->size);
  return p + 1;
}

// absent sets the options among fields to none, and returns the number of other fields.
static u32 absent(const struct node *t, u32 to, u32 from, u32 end) {
  u32 needed = 0;
  for (; from < end && t->kind == RECORD; from++) {
    const struct row *r = &t->rows[t->rows[from].sorted];
    if (node(r->type)->kind == OPTION) AT8(to + r->offset) = 0;
    else needed++;
  }
  return needed;
}

// read_record reads the fields of a record, or flags. Names likely come sorted, and in the
// descriptors each stands as it does in a document without blanks: "name":.
APART static const u8 *read_record(const struct node *t, u32 to, const u8 *p) {
  const struct row *next = t->rows, *end = next + t->n, *r; // the sorted names before next have been seen, or set to none
  u32 missing = 0, flags = 0;
  if (*p != '{') return MISFIT("an object is expected");
  p = space(p + 1);
  if (*p != '}')
    for (;;) {
      if (next < end && (r = &t->rows[next->sorted], equal(descriptors + r->name - 1, p, r->name_n + 3))) {
        p = space(p + r->name_n + 3);
        next++;
      } else {
        u32 at = next - t->rows;
        r = find(t, p, &at, &p, 1);
        if (!p) return MISFIT("an object is expected");
        if (r && t->rows + at >= next) {
          missing += absent(t, to, next - t->rows, at);
          next = t->rows + at + 1;
        } else if (r && t->kind == RECORD) {
          missing -= node(r->type)->kind != OPTION;
        }
      }
      if (!r) {
        if (!(p = skip(p))) return MISFIT("an object is expected");
      } else if (t->kind == RECORD) {
        if (!(p = read_value(node(r->type), to + r->offset, p))) return 0;
      } else {
        flags |= (u32)(*p == 't') << (r - t->rows);
        p += *p == 't' ? 4 : 5;
      }
      p = space(p);
      if (*p != ',') break;
      p = space(p + 1);
    }
  if (*p != '}') return MISFIT("an object is expected");
  if (t->kind == FLAGS) store(to, t->size, flags);
  else if (missing + absent(t, to, next - t->rows, t->n)) return MISFIT("a member is missing");
  return p + 1;
}

// read_case reads {"tag": NAME, "val": VALUE}, or {"ok": VALUE} and {"err": VALUE}.
APART static const u8 *read_case(const struct node *t, u32 to, const u8 *p) {
  const struct row *r = t->rows;
  const u8 *value, *end = 0, *tag;
  struct text key;
  u32 at = 0;
  if (t->kind == RESULT) {
    if (!(value = member(p, TEXT("ok"))) && r++ && !(value = member(p, TEXT("err")))) return MISFIT("ok or err is missing");
  } else {
    if (!(tag = member(p, TEXT("tag"))) || !(r = find(t, tag, &at, &end, 0))) return MISFIT("the tag is missing or unknown");
    value = member(p, TEXT("val"));
  }
  store(to, t->a, r - t->rows);
  if (r->type && value) {
    if (!(end = read_value(node(r->type), to + t->b, value))) return 0;
  } else if (value) {
    end = skip(value);
  } else if (r->type) {
    if (node(r->type)->kind != OPTION) return MISFIT("val is missing");
    AT8(to + t->b) = 0;
  }
  while (end && (p = each(end, &key))) end = skip(p);
  return end && *space(end) == '}' ? space(end) + 1 : MISFIT("an object is expected");
}

APART static const u8 *read_char(u32 to, const u8 *p) {
  u8 s[8];
  const u8 *end;
  u32 n;
  if (*p != '"' || !(end = scan(p + 1, &n)) || n - 1 > 3) return MISFIT("one character is expected");
  unescape(s, p + 1, end, n);
  if (n != (s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4)) return MISFIT("one character is expected");
  u32 c = n == 1 ? s[0] : s[0] & (0x7f >> n);
  for (u32 i = 1; i < n; i++) c = c << 6 | (s[i] & 63);
  AT32(to) = c;
  return end + 1;
}

static const u8 *read_value(const struct node *t, u32 to, const u8 *p) {
  const u8 *end;
  u32 n, expected;
  switch (t->kind) {
  case STRING:
    if (*p != '"' || !(end = scan(p + 1, &n))) return MISFIT("a string is expected");
    AT32(to) = value_memory(n, 1, 1);
    AT32(to + 4) = n;
    unescape((void *)AT32(to), p + 1, end, n);
    return end + 1;
  case RECORD: case FLAGS:
    return read_record(t, to, p);
  case LIST:
    if (*p != '[') return MISFIT("an array is expected");
    return read_list(t, to, p);
  case F32: case F64:
    return read_float(t, to, p);
  case BOOL:
    AT8(to) = *p == 't';
    if (*p == 't') return p + 4;
    if (*p == 'f') return p + 5;
    return MISFIT("true or false is expected");
  case OPTION:
    AT8(to) = *p != 'n';
    return *p == 'n' ? p + 4 : read_value(node(t->a), to + t->b, p);
  case ENUM:
    expected = t->n;
    if (*p != '"') return MISFIT("a string is expected");
    const struct row *r = find(t, p, &expected, &end, 0);
    if (!r) return MISFIT("the name is unknown");
    store(to, t->a, r - t->rows);
    return end;
  case TUPLE:
    if (*p != '[') return MISFIT("an array is expected");
    for (u32 i = 0; i < t->n; i++) {
      if (i && *p != ',') return MISFIT("the array is too short");
      p = space(p + 1);
      if (*p == ']') return MISFIT("the array is too short");
      if (!(p = read_value(node(t->rows[i].type), to + t->rows[i].offset, p))) return 0;
      p = space(p);
    }
    if (!t->n) p = space(p + 1);
    return *p == ']' ? p + 1 : MISFIT("the array is too long");
  case VARIANT: case RESULT:
    return read_case(t, to, p);
  case CHAR:
    return read_char(to, p);
  case OWN: case BORROW: case OTHER:
    return MISFIT("a resource cannot come from outside");
  default:
    return read_integer(t, to, p);
  }
}

static u32 discriminant(const struct node *t, u32 p) {
  u32 i = load(p, t->kind == OPTION ? 1 : t->a);
  if (i >= (t->kind == OPTION ? 2 : t->n)) BROKEN("a discriminant is out of range");
  return i;
}

// payload returns the type of the payload that a value of several cases has, or 0.
static u32 payload(const struct node *t, u32 i) { return t->kind == OPTION ? (i ? t->a : 0) : t->kind == ENUM ? 0 : t->rows[i].type; }

static u32 is_char(u32 c) { return c <= 0x10ffff && c - 0xd800 >= 0x800; }

// write_name writes "name": with the quotes, and returns where it ends without the colon.
static inline u8 *write_name(u8 *w, const struct row *r) {
  const u8 *name = descriptors + r->name - 1;
  u32 n = r->name_n + 3;
  w = room(w, n + SLACK);
  for (u32 i = 0; i < n; i += 8) AT64(w + i) = AT64(name + i);
  return w + n - 1;
}

APART static u8 *write_char(u8 *w, u32 c) {
  u8 s[4];
  if (!is_char(c)) BROKEN("not a character");
  return write_text(w, s, encode(s, c) - s);
}

APART static u8 *write_any(u8 *w, u64 bits, u32 precision) { // also infinity and what is no number
  u64 infinite = precision == 53 ? 0x7ff0000000000000 : 0x7f800000;
  if ((bits & infinite) != infinite) return write_float(w, bits, precision);
  if (bits & ((infinite & -infinite) - 1)) return WRITE(w, "\"NaN\"");
  return bits == infinite ? WRITE(w, "\"Infinity\"") : WRITE(w, "\"-Infinity\"");
}

static u8 *write_bool(u8 *w, u32 v) {
  AT64(w) = *(const u64 *)(v ? "true    " : "false   ");
  return w + (v ? 4 : 5);
}

// write_value writes a value to where there is room for a number at least.
static u8 *write_value(u8 *w, const struct node *t, u32 p) {
  switch (t->kind) {
  case BOOL:
    return write_bool(w, AT8(p));
  case S8: case S16: case S32: case S64: {
    i64 v = t->size == 4 ? (i32)AT32(p) : t->size == 8 ? (i64)AT64(p) : t->size == 2 ? (short)AT16(p) : (signed char)AT8(p);
    if (v < 0) *w++ = '-';
    return write_number(w, v < 0 ? 0 - (u64)v : v);
  }
  case F32: case F64:
    return write_any(w, load(p, t->size), t->kind == F64 ? 53 : 24);
  case CHAR:
    return write_char(w, AT32(p));
  case STRING:
    in_memory(AT32(p), AT32(p + 4), 1);
    return write_text(w, (const u8 *)AT32(p), AT32(p + 4));
  case LIST: {
    const struct node *item = node(t->a);
    u32 at = AT32(p), n = AT32(p + 4);
    in_memory(at, (u64)n * item->size, item->align);
    *w++ = '[';
    for (; n; n--, at += item->size) {
      w = write_value(room(w, SLACK), item, at);
      *w++ = ',';
    }
    w -= w[-1] == ',';
    *w++ = ']';
    return w;
  }
  case RECORD: case TUPLE: case FLAGS: {
    u32 flags = t->kind == FLAGS ? load(p, t->size) : 0, tuple = t->kind == TUPLE;
    *w++ = tuple ? '[' : '{';
    for (const struct row *s = t->rows, *end = s + t->n; s < end; s++) {
      const struct row *r = tuple ? s : &t->rows[s->sorted];
      w = tuple ? room(w, SLACK) : write_name(w, r) + 1;
      w = t->kind == FLAGS ? write_bool(w, flags >> s->sorted & 1) : write_value(w, node(r->type), p + r->offset);
      *w++ = ',';
    }
    w -= w[-1] == ',';
    *w++ = tuple ? ']' : '}';
    return w;
  }
  case OPTION:
    if (discriminant(t, p)) return write_value(w, node(t->a), p + t->b);
    copy(w, "null", 4);
    return w + 4;
  case ENUM:
    return write_name(w, &t->rows[discriminant(t, p)]);
  case VARIANT: case RESULT: {
    const struct row *r = &t->rows[discriminant(t, p)];
    *w++ = '{';
    if (t->kind == VARIANT) {
      copy(w, "\"tag\":", 6);
      w = write_name(w + 6, r);
      if (r->type) {
        copy(w, ",\"val\":", 7);
        w += 7;
      }
    } else {
      w = write_name(w, r) + 1;
      if (!r->type) w = WRITE(w, "null");
    }
    if (r->type) w = write_value(w, node(r->type), p + t->b);
    *w++ = '}';
    return w;
  }
  case OWN: case BORROW: case OTHER:
    BROKEN("a resource or a stream cannot leave the component");
  default:
    return write_number(w, load(p, t->size));
  }
}

// flatten moves a value from memory to its flat form, in slots of eight bytes; or with back
// from there to memory.
static void flatten(const struct node *t, u32 p, u64 *slots, u32 back) {
  u32 i, size = t->kind == OPTION ? 1 : t->a;
  switch (t->kind) {
  case STRING: case LIST:
    for (i = 0; i < 2; i++)
      if (back) AT32(p + 4 * i) = slots[i];
      else slots[i] = AT32(p + 4 * i);
    return;
  case RECORD: case TUPLE:
    for (i = 0; i < t->n; slots += node(t->rows[i++].type)->flat) flatten(node(t->rows[i].type), p + t->rows[i].offset, slots, back);
    return;
  case VARIANT: case ENUM: case OPTION: case RESULT:
    if (back) {
      if ((slots[0] & ~0u) >> (8 * size)) BROKEN("a discriminant is out of range");
      store(p, size, slots[0]);
    } else {
      zero(slots, 8 * t->flat);
    }
    i = discriminant(t, p);
    if (!back) slots[0] = i;
    if (payload(t, i)) flatten(node(payload(t, i)), p + t->b, slots + 1, back);
    return;
  case BOOL:
    if (back) slots[0] = (u32)slots[0] != 0;
    break;
  case S8: case S16:
    if (!back) slots[0] = t->kind == S8 ? (u32)(signed char)AT8(p) : (u32)(short)AT16(p);
    if (!back) return;
  }
  if (back) store(p, t->size, slots[0]);
  else slots[0] = load(p, t->size);
}

// A call between parts: which instances, the handles that it lends, and how many of those that
// were borrowed are not dropped.
struct pass {
  u32 from, to, borrowed, *lent, n, room;
};

// pass_value checks a value for another part of the component, and moves its handles there.
// Parts share no lists and strings, which need a memory on each side.
static void pass_value(const struct node *t, u32 p, struct pass *call) {
  u32 i;
  switch (t->kind) {
  case CHAR:
    if (!is_char(AT32(p))) BROKEN("not a character");
    return;
  case RECORD: case TUPLE:
    for (i = 0; i < t->n; i++) pass_value(node(t->rows[i].type), p + t->rows[i].offset, call);
    return;
  case VARIANT: case OPTION: case RESULT:
    i = payload(t, discriminant(t, p));
    if (i) pass_value(node(i), p + t->b, call);
    return;
  case FLAGS:
    store(p, t->size, load(p, t->size) & (u32)((1ull << t->n) - 1));
    return;
  case OWN: case BORROW: {
    u32 type = t->a == ~0u ? 0 : RESOURCE + t->a;
    i = AT32(p);
    if (!type && i < table_of(call->from)->n) type = table_of(call->from)->handles[i].type; // of the guest side
    if (t->kind == OWN) {
      struct handle h = handle_take(call->from, type, i);
      if (h.scope) BROKEN("a borrowed handle cannot be given away");
      AT32(p) = handle_new(call->to, h);
      return;
    }
    struct handle *lent = handle_get(call->from, type, i), h = *lent;
    lent->lends++;
    call->lent = grow(call->lent, call->n, 1, sizeof i, &call->room);
    call->lent[call->n++] = i;
    if (h.owner == call->to) {
      AT32(p) = h.rep;
      return;
    }
    h.lends = 0;
    h.scope = &call->borrowed;
    call->borrowed++;
    AT32(p) = handle_new(call->to, h);
  }
  }
}
