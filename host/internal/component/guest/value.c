// Values of the component's functions: from JSON to the canonical ABI and back, from memory
// to flat form and back, and from one part of the component to another.

enum kind { BOOL, S8, U8, S16, U16, S32, U32, S64, U64, F32, F64, CHAR, STRING, LIST, RECORD, TUPLE, VARIANT, ENUM, OPTION, RESULT, FLAGS, OWN, BORROW };

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

// Where the memory of a value comes from: the realloc of function `callee`, or with to_caller
// of the call in progress.
static u32 callee, to_caller;
static u32 value_memory(u32 n, u32 size, u32 align) {
  if ((u64)n * size > 0x7fffffff) BROKEN("a list is too long");
  u32 p = to_caller ? link_realloc(0, 0, align, n * size) : link_arg_realloc(callee, align, n * size);
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

// Why the input does not fit, and the path of the member that does not, which is written from
// its end.
static struct text why;
static u8 path[256];
static u32 path_at;

SLOW static const u8 *misfit(const char *reason, u32 n) {
  if (!why.p) {
    why = (struct text){(const u8 *)reason, n};
    path_at = sizeof path;
  }
  return 0;
}
#define MISFIT(reason) misfit(reason, sizeof(reason) - 1)

SLOW static const u8 *inside_member(const struct row *r) {
  if (r->name_n + 1 < path_at) {
    path_at -= r->name_n;
    copy(path + path_at, descriptors + r->name, r->name_n);
    path[--path_at] = '.';
  }
  return 0;
}

SLOW static const u8 *inside_item(u32 i) {
  u8 digits[12], *end = write_number(digits, i);
  u32 n = end - digits;
  if (n + 2 < path_at) {
    path[--path_at] = ']';
    path_at -= n;
    copy(path + path_at, digits, n);
    path[--path_at] = '[';
  }
  return 0;
}

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

// find reads the name at p and returns its row, or 0; end is set behind it, or to 0.
static const struct row *find(const struct node *t, const u8 *p, u32 *expected, const u8 **end) {
  if (*expected < t->n) {
    const struct row *r = &t->rows[t->rows[*expected].sorted];
    if (p[r->name_n + 1] == '"' && equal(descriptors + r->name, p + 1, r->name_n)) {
      *end = p + r->name_n + 2;
      return r;
    }
  }
  struct text name;
  *end = read_text(p, &name);
  return *end ? row_of(t, name, expected) : 0;
}

static const u8 *read_value(const struct node *t, u32 to, const u8 *p);

static const u8 *read_integer(const struct node *t, u32 to, const u8 *p) {
  u32 negative = *p == '-', c, digits = 0;
  u64 v = 0;
  const u8 *start = p;
  for (p += negative; (c = *p - '0') < 10 && digits < 19; p++, digits++) v = v * 10 + c;
  if (!digits) return MISFIT("an integer is expected");
  if (c < 10 || *p == '.' || (*p | 32) == 'e') { // it is long, or written as a fraction
    struct decimal d;
    if (!(p = read_decimal(start, &d))) return MISFIT("an integer is expected");
    i32 whole = d.scale; // digits before the point
    for (u64 first = d.value; first; first /= 10) whole++;
    if (!d.value) whole = 0;
    if (whole > 20) return MISFIT("the integer is out of range");
    v = 0;
    for (const u8 *q = d.digits; q < d.end; q++) {
      if ((c = *q - '0') > 9 || (!v && !c)) continue;
      if (whole-- <= 0) {
        if (c) return MISFIT("an integer is expected");
        continue;
      }
      if (v > (~0ull - c) / 10) return MISFIT("the integer is out of range");
      v = v * 10 + c;
    }
    for (; whole > 0; whole--) {
      if (v > ~0ull / 10) return MISFIT("the integer is out of range");
      v *= 10;
    }
  }
  u32 bits = 8 * t->size, is_signed = t->kind == S8 || t->kind == S16 || t->kind == S32 || t->kind == S64;
  u64 most = is_signed ? (1ull << (bits - 1)) - 1 + negative : negative ? 0 : ~0ull >> (64 - bits);
  if (v > most) return MISFIT("the integer is out of range");
  store(to, t->size, negative ? 0 - v : v);
  return p;
}

static const u8 *read_float(const struct node *t, u32 to, const u8 *p) {
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

static const u8 *read_list(const struct node *t, u32 to, const u8 *p) {
  const struct node *item = node(t->a);
  struct mark mark = scratch_mark();
  // The items go to pieces, each of twice the size of the one before, as their number is not
  // known yet.
  u32 pieces[28], piece = 0, first = 64 / (item->size + 1) + 1, left = 0, at = 0, n = 0;
  p = space(p + 1);
  if (*p != ']')
    for (;; n++) {
      if (!left) {
        u64 size = ((u64)first << piece) * item->size;
        if (piece == 28 || size > 0x7fffffff) return MISFIT("the array is too long");
        left = first << piece;
        at = pieces[piece++] = scratch(size);
      }
      if (!(p = read_value(item, at, p))) return inside_item(n);
      at += item->size;
      left--;
      p = space(p);
      if (*p != ',') {
        n++;
        break;
      }
      p = space(p + 1);
    }
  if (*p != ']') return MISFIT("an array is expected");
  u32 list = value_memory(n, item->size, item->align);
  AT32(to) = list;
  AT32(to + 4) = n;
  for (u32 i = 0, rest = n; rest; i++) {
    u32 some = first << i < rest ? first << i : rest;
    copy(list, pieces[i], some * item->size);
    list += some * item->size;
    rest -= some;
  }
  scratch_free(mark);
  return p + 1;
}

static const u8 *read_record(const struct node *t, u32 to, const u8 *p) {
  u32 expected = 0, count = 0, seen[(t->n + 31) / 32 + 1];
  zero(seen, sizeof seen);
  if (*p != '{') return MISFIT("an object is expected");
  p = space(p + 1);
  if (*p != '}')
    for (;;) {
      if (*p != '"') return MISFIT("an object is expected");
      const struct row *r = find(t, p, &expected, &p);
      if (!p) return MISFIT("an object is expected");
      p = space(p);
      if (*p != ':') return MISFIT("an object is expected");
      p = space(p + 1);
      if (r) {
        if (!(p = read_value(node(r->type), to + r->offset, p))) return inside_member(r);
        seen[expected / 32] |= 1u << (expected & 31);
        expected++;
        count++;
      } else if (!(p = skip(p))) {
        return MISFIT("an object is expected");
      }
      p = space(p);
      if (*p != ',') break;
      p = space(p + 1);
    }
  if (*p != '}') return MISFIT("an object is expected");
  for (u32 i = 0; count < t->n && i < t->n; i++)
    if (!(seen[i / 32] >> (i & 31) & 1)) {
      const struct row *r = &t->rows[t->rows[i].sorted];
      if (node(r->type)->kind != OPTION) {
        MISFIT("it is missing");
        return inside_member(r);
      }
      AT8(to + r->offset) = 0;
    }
  return p + 1;
}

// read_case reads {"tag": NAME, "val": VALUE}, or {"ok": VALUE} and {"err": VALUE}.
static const u8 *read_case(const struct node *t, u32 to, const u8 *p) {
  const struct row *r = 0;
  const u8 *value = 0, *read = 0;
  struct text key;
  if (*p != '{') return MISFIT("an object is expected");
  const u8 *next = p;
  while ((next = each(next, &key))) {
    p = next;
    u32 expected = t->n;
    if (t->kind == RESULT) {
      const struct row *hit = row_of(t, key, &expected);
      if (hit && !r) {
        r = hit;
        value = p;
      }
    } else if (key.n == 3 && equal(key.p, "tag", 3)) {
      if (*p != '"') return MISFIT("the tag is not a string");
      if (!(r = find(t, p, &expected, &next))) return MISFIT("the tag is unknown");
      p = next;
      continue;
    } else if (key.n == 3 && equal(key.p, "val", 3)) {
      value = p;
    }
    if (value == p && r && r->type) {
      if (!(next = read = read_value(node(r->type), to + t->b, p))) return inside_member(r);
    } else if (!(next = skip(p))) {
      break;
    }
    p = next;
  }
  if (p[0] == '{') p = space(p + 1);
  p = space(p);
  if (*p != '}') return MISFIT("an object is expected");
  if (!r) return t->kind == RESULT ? MISFIT("ok or err is missing") : MISFIT("the tag is missing");
  store(to, t->a, r - t->rows);
  if (r->type && !read) {
    if (value) {
      if (!read_value(node(r->type), to + t->b, value)) return inside_member(r);
    } else if (node(r->type)->kind == OPTION) {
      AT8(to + t->b) = 0;
    } else {
      return MISFIT("val is missing");
    }
  }
  return p + 1;
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
  case RECORD:
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
    const struct row *r = find(t, p, &expected, &end);
    if (!r) return MISFIT("the name is unknown");
    store(to, t->a, r - t->rows);
    return end;
  case TUPLE:
    if (*p != '[') return MISFIT("an array is expected");
    for (u32 i = 0; i < t->n; i++) {
      if (i && *p != ',') return MISFIT("the array is too short");
      p = space(p + 1);
      if (*p == ']') return MISFIT("the array is too short");
      if (!(p = read_value(node(t->rows[i].type), to + t->rows[i].offset, p))) return inside_item(i);
      p = space(p);
    }
    if (!t->n) p = space(p + 1);
    return *p == ']' ? p + 1 : MISFIT("the array is too long");
  case VARIANT: case RESULT:
    return read_case(t, to, p);
  case FLAGS: {
    struct text key;
    u32 flags = 0;
    if (*p != '{') return MISFIT("an object is expected");
    if (*space(p + 1) == '}') {
      p = space(p + 1);
    } else {
      expected = 0;
      do {
        const struct row *flag;
        const u8 *value = each(p, &key);
        if (!value) return MISFIT("an object is expected");
        flag = row_of(t, key, &expected);
        if (flag && *value != 't' && *value != 'f') {
          MISFIT("true or false is expected");
          return inside_member(flag);
        }
        if (flag && *value == 't') flags |= 1u << (flag - t->rows);
        if (flag) expected++;
        if (!(p = skip(value))) return MISFIT("an object is expected");
        p = space(p);
      } while (*p == ',');
    }
    if (*p != '}') return MISFIT("an object is expected");
    store(to, t->size, flags);
    return p + 1;
  }
  case CHAR: {
    u8 s[8];
    if (*p != '"' || !(end = scan(p + 1, &n)) || n - 1 > 3) return MISFIT("one character is expected");
    unescape(s, p + 1, end, n);
    if (n != (s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4)) return MISFIT("one character is expected");
    u32 c = n == 1 ? s[0] : s[0] & (0x7f >> n);
    for (u32 i = 1; i < n; i++) c = c << 6 | (s[i] & 63);
    AT32(to) = c;
    return end + 1;
  }
  case OWN: case BORROW:
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

static void check_char(u32 c) {
  if (c > 0x10ffff || c - 0xd800 < 0x800) BROKEN("not a character");
}

static u8 *write_name(u8 *w, const struct row *r) {
  w = room(w, r->name_n + 3);
  *w = '"';
  copy(w + 1, descriptors + r->name, r->name_n);
  w += r->name_n + 2;
  w[-1] = '"';
  *w = ':'; // used or overwritten
  return w;
}

static u8 *write_value(u8 *w, const struct node *t, u32 p) {
  w = room(w, 64);
  switch (t->kind) {
  case BOOL:
    if (AT8(p)) {
      copy(w, "true", 4);
      return w + 4;
    }
    copy(w, "false", 5);
    return w + 5;
  case S8: case S16: case S32: case S64: {
    i64 v = t->size == 1 ? (signed char)AT8(p) : t->size == 2 ? (short)AT16(p) : t->size == 4 ? (i32)AT32(p) : (i64)AT64(p);
    if (v < 0) *w++ = '-';
    return write_number(w, v < 0 ? 0 - (u64)v : v);
  }
  case F32: case F64: {
    u32 precision = t->kind == F64 ? 53 : 24;
    u64 bits = load(p, t->size), infinite = precision == 53 ? 0x7ff0000000000000 : 0x7f800000;
    if ((bits & infinite) != infinite) return write_float(w, bits, precision);
    if (bits & ((infinite & -infinite) - 1)) return WRITE(w, "\"NaN\"");
    return bits == infinite ? WRITE(w, "\"Infinity\"") : WRITE(w, "\"-Infinity\"");
  }
  case CHAR: {
    u8 s[4];
    check_char(AT32(p));
    return write_text(w, s, encode(s, AT32(p)) - s);
  }
  case STRING:
    in_memory(AT32(p), AT32(p + 4), 1);
    return write_text(w, (const u8 *)AT32(p), AT32(p + 4));
  case LIST: {
    const struct node *item = node(t->a);
    u32 at = AT32(p), n = AT32(p + 4);
    in_memory(at, (u64)n * item->size, item->align);
    *w++ = '[';
    for (u32 i = 0; i < n; i++, at += item->size) {
      if (i) *w++ = ',';
      w = room(write_value(w, item, at), 2);
    }
    *w++ = ']';
    return w;
  }
  case RECORD: case FLAGS: {
    u32 flags = t->kind == FLAGS ? load(p, t->size) : 0;
    *w++ = '{';
    for (u32 i = 0; i < t->n; i++) {
      const struct row *r = &t->rows[t->rows[i].sorted];
      if (i) *w++ = ',';
      w = write_name(w, r) + 1;
      if (t->kind == RECORD) w = write_value(w, node(r->type), p + r->offset);
      else if (flags >> t->rows[i].sorted & 1) w = WRITE(w, "true");
      else w = WRITE(w, "false");
      w = room(w, 2);
    }
    *w++ = '}';
    return w;
  }
  case TUPLE:
    *w++ = '[';
    for (u32 i = 0; i < t->n; i++) {
      if (i) *w++ = ',';
      w = room(write_value(w, node(t->rows[i].type), p + t->rows[i].offset), 2);
    }
    *w++ = ']';
    return w;
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
      w = write_name(WRITE(w, "\"tag\":"), r);
      if (r->type) w = WRITE(w, ",\"val\":");
    } else {
      w = write_name(w, r) + 1;
      if (!r->type) w = WRITE(w, "null");
    }
    if (r->type) w = write_value(w, node(r->type), p + t->b);
    w = room(w, 1);
    *w++ = '}';
    return w;
  }
  case OWN: case BORROW:
    BROKEN("a resource cannot go outside");
  default:
    return write_number(w, load(p, t->size));
  }
}

// to_flat writes the flat form of a value to slots of eight bytes, and from_flat reads it back.
static void to_flat(const struct node *t, u32 p, u64 *slots) {
  u32 i;
  switch (t->kind) {
  case STRING: case LIST:
    slots[0] = AT32(p);
    slots[1] = AT32(p + 4);
    return;
  case RECORD: case TUPLE:
    for (i = 0; i < t->n; i++) {
      const struct node *field = node(t->rows[i].type);
      to_flat(field, p + t->rows[i].offset, slots);
      slots += field->flat;
    }
    return;
  case VARIANT: case ENUM: case OPTION: case RESULT:
    zero(slots, 8 * t->flat);
    slots[0] = i = discriminant(t, p);
    if (payload(t, i)) to_flat(node(payload(t, i)), p + t->b, slots + 1);
    return;
  case S8:
    slots[0] = (u32)(signed char)AT8(p);
    return;
  case S16:
    slots[0] = (u32)(short)AT16(p);
    return;
  default:
    slots[0] = load(p, t->size);
  }
}

static void from_flat(const struct node *t, const u64 *slots, u32 p) {
  u32 i;
  switch (t->kind) {
  case STRING: case LIST:
    AT32(p) = slots[0];
    AT32(p + 4) = slots[1];
    return;
  case RECORD: case TUPLE:
    for (i = 0; i < t->n; i++) {
      const struct node *field = node(t->rows[i].type);
      from_flat(field, slots, p + t->rows[i].offset);
      slots += field->flat;
    }
    return;
  case VARIANT: case ENUM: case OPTION: case RESULT:
    i = slots[0];
    if (i >= (t->kind == OPTION ? 2 : t->n)) BROKEN("a discriminant is out of range");
    store(p, t->kind == OPTION ? 1 : t->a, i);
    if (payload(t, i)) from_flat(node(payload(t, i)), slots + 1, p + t->b);
    return;
  case BOOL:
    AT8(p) = (u32)slots[0] != 0;
    return;
  default:
    store(p, t->size, slots[0]);
  }
}

// Handles that a call between parts borrows, and those that it has lent.
struct pass {
  u32 from, to, borrows;
  u32 *lent, n, room;
};

// pass_value copies a value, with all that it leads to, to another part of the component.
static void pass_value(const struct node *t, u32 from, u32 to, struct pass *call) {
  u32 n, i;
  switch (t->kind) {
  case BOOL:
    AT8(to) = AT8(from) != 0;
    return;
  case CHAR:
    check_char(AT32(from));
    AT32(to) = AT32(from);
    return;
  case STRING:
    n = AT32(from + 4);
    in_memory(AT32(from), n, 1);
    for (const u8 *p = (const u8 *)AT32(from), *end = p + n; p < end;) {
      u32 k = *p < 0x80 ? 1 : character(p, end - p);
      if (!k) BROKEN("a string is not UTF-8");
      p += k;
    }
    i = value_memory(n, 1, 1);
    copy(i, AT32(from), n);
    AT32(to) = i;
    AT32(to + 4) = n;
    return;
  case LIST: {
    const struct node *item = node(t->a);
    u32 at = AT32(from);
    n = AT32(from + 4);
    in_memory(at, (u64)n * item->size, item->align);
    u32 list = value_memory(n, item->size, item->align);
    AT32(to) = list;
    AT32(to + 4) = n;
    if (item->kind > BOOL && item->kind <= F64) copy(list, at, n * item->size);
    else for (i = 0; i < n; i++) pass_value(item, at + i * item->size, list + i * item->size, call);
    return;
  }
  case RECORD: case TUPLE:
    for (i = 0; i < t->n; i++) pass_value(node(t->rows[i].type), from + t->rows[i].offset, to + t->rows[i].offset, call);
    return;
  case VARIANT: case ENUM: case OPTION: case RESULT:
    i = discriminant(t, from);
    store(to, t->kind == OPTION ? 1 : t->a, i);
    if (payload(t, i)) pass_value(node(payload(t, i)), from + t->b, to + t->b, call);
    return;
  case FLAGS:
    store(to, t->size, load(from, t->size) & (u32)((1ull << t->n) - 1));
    return;
  case OWN: case BORROW: {
    u32 type = RESOURCE + t->a;
    if (t->a == ~0u) { // of the guest side
      struct table *table = table_of(call->from);
      i = AT32(from);
      type = i < table->n && table->handles[i].type < RESOURCE ? table->handles[i].type : NONE;
    }
    if (t->kind == OWN) {
      struct handle h = handle_take(call->from, type, AT32(from));
      if (h.scope) BROKEN("a borrowed handle cannot be given away");
      AT32(to) = handle_new(call->to, h);
      return;
    }
    struct handle h = *handle_get(call->from, type, AT32(from));
    handle_get(call->from, type, AT32(from))->lends++;
    if (call->n == call->room) {
      call->room = 2 * call->room + 8;
      u32 *more = alloc(call->room * sizeof *more);
      copy(more, call->lent, call->n * sizeof *more);
      call->lent = more;
    }
    call->lent[call->n++] = AT32(from);
    if (h.owner == call->to) {
      AT32(to) = h.rep;
      return;
    }
    h.lends = 0;
    h.scope = &call->borrows;
    call->borrows++;
    AT32(to) = handle_new(call->to, h);
    return;
  }
  default:
    copy(to, from, t->size);
  }
}
