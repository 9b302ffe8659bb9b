// A component of plain values, over the canonical ABI by hand: build.mjs makes values.wasm of it.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define EXPORT(name) __attribute__((export_name(name)))
#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define API "test:values/api#"

extern u8 __heap_base;
static u32 top;

EXPORT("cabi_realloc") u8 *cabi_realloc(u8 *old, u32 old_size, u32 align, u32 size) {
  if (!top) top = (u32)&__heap_base;
  top = (top + align - 1) & -align;
  u8 *p = (u8 *)top;
  top += size;
  u32 pages = (top + 0xffff) >> 16, have = __builtin_wasm_memory_size(0);
  if (pages > have && __builtin_wasm_memory_grow(0, pages - have) == -1u) __builtin_trap();
  for (u32 i = 0; i < old_size && i < size; i++) p[i] = old[i];
  return p;
}

static u64 result[64];
#define AT(type, offset) *(type *)((u8 *)result + (offset))

// The tuple holds `every`, of 216 bytes, and behind it the list.
EXPORT(API "every-one") void *every_one(u8 *args) { return args; }

// The cases are joined to i32, i64, i32.
EXPORT(API "shapes") void *shapes(u32 tag, u64 a, u32 b) {
  AT(u8, 0) = tag;
  if (tag == 0) AT(u64, 8) = a;
  else AT(u32, 8) = a, AT(u32, 12) = b;
  return result;
}

EXPORT(API "numbers") void *numbers(u32 a, int b, u32 c, int d, u32 e, int f, u32 g, u64 h, u64 i, float j, double k, u32 l) {
  if (a > 1 || b < -128 || b > 127 || c > 255 || d < -32768 || d > 32767 || e > 65535) __builtin_trap();
  AT(u8, 0) = a, AT(u8, 1) = b, AT(u8, 2) = c, AT(u16, 4) = d, AT(u16, 6) = e, AT(u32, 8) = f, AT(u32, 12) = g;
  AT(u64, 16) = h, AT(u64, 24) = i, AT(float, 32) = j, AT(double, 40) = k, AT(u32, 48) = l;
  return result;
}

EXPORT(API "either") void *either(u32 tag, u64 v) {
  AT(u8, 0) = 1, AT(u8, 8) = tag;
  if (tag) AT(u32, 16) = v;
  else AT(u64, 16) = v;
  return result;
}

EXPORT(API "access-of") void *access_of(u32 v, u32 w) {
  AT(u8, 0) = v, AT(u8, 1) = w;
  return result;
}

EXPORT(API "double") double twice(double v) { return 2 * v; }

EXPORT(API "upper") void *upper(u8 *s, u32 n) {
  static const char why[] = "no \"text\"\n";
  for (u32 i = 0; i < n; i++)
    if (s[i] >= 'a' && s[i] <= 'z') s[i] -= 32;
  AT(u8, 0) = !n, AT(u32, 4) = n ? (u32)s : (u32)why, AT(u32, 8) = n ? n : sizeof why - 1;
  return result;
}

static u32 posts;
EXPORT("cabi_post_" API "upper") void upper_post(void *p) { posts++; }
EXPORT(API "nothing") void nothing(void) {}

IMPORT("[export]test:values/api", "[resource-new]counter") u32 counter_new(u32 rep);
IMPORT("[export]test:values/api", "[resource-rep]counter") u32 counter_rep(u32 handle);
IMPORT("[export]test:values/api", "[resource-drop]counter") void counter_drop(u32 handle);
static u32 dropped;
EXPORT(API "[constructor]counter") u32 counter(u32 start) {
  u32 *c = (u32 *)cabi_realloc(0, 0, 4, 4);
  *c = start;
  return counter_new((u32)c);
}
EXPORT(API "[method]counter.add") u32 add(u32 *rep, u32 n) { return *rep += n; }
EXPORT(API "[dtor]counter") void drop(u32 *rep) { dropped += *rep; }
EXPORT(API "make") u32 make(void) { return counter(0); }

static u8 text[1000];
static u32 length;
static void number(u32 v, u8 after) {
  u8 digits[10], n = 0;
  do digits[n++] = '0' + v % 10;
  while (v /= 10);
  while (n) text[length++] = digits[--n];
  text[length++] = after;
}

EXPORT(API "count") void *count(u32 start, u32 *steps, u32 n) {
  for (u32 i = 0; i < n && i < 30; i++) {
    u32 handle = counter(start);
    number(handle, ':');
    number(add((u32 *)counter_rep(handle), steps[i]), ' ');
    if (i % 2) counter_drop(handle);
  }
  number(dropped, '.');
  AT(u32, 0) = (u32)text, AT(u32, 4) = length;
  return result;
}

IMPORT("wasi:clocks/wall-clock@0.2.3", "now") void now(void *datetime);
IMPORT("wasi:random/random@0.2.0", "get-random-u64") u64 random(void);
EXPORT("today") u64 today(void) {
  now(result);
  return AT(u64, 0);
}
EXPORT("luck") u64 luck(void) { return random(); }
