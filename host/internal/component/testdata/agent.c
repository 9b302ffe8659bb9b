// A tool for IronClaw that returns its parameters, and the context if it has one, as an array. With
// {"get":1} it adds what an address returns.
typedef unsigned char u8;
typedef unsigned int u32;
#define EXPORT(name) __attribute__((export_name("near:agent/tool@0.3.0#" name)))

static u8 heap[1 << 16];
static u32 top;
__attribute__((export_name("cabi_realloc"))) u8 *cabi_realloc(u8 *old, u32 old_size, u32 align, u32 size) {
  top = (top + align - 1) & -align;
  u8 *p = heap + top;
  top += size;
  if (top > sizeof heap) __builtin_trap();
  return p;
}

static u32 result[6];
static u8 text[1000];
static u32 length;
static void append(const u8 *p, u32 n) {
  while (n--) text[length++] = *p++;
}

__attribute__((import_module("near:agent/host@0.3.0"), import_name("http-request"))) void http(
    const char *method, u32 n, const char *url, u32 m, const char *headers, u32 k, u32 some, const u8 *body, u32 l, u32 limited, u32 timeout, u32 *to);

EXPORT("execute") u32 *execute(u8 *params, u32 n, u32 some, u8 *context, u32 m) {
  append((const u8 *)"[", 1);
  append(params, n);
  if (some) append((const u8 *)",", 1), append(context, m);
  if (n == 9) {
    u32 r[6];
    http("GET", 3, "https://notes.example/x", 23, "{}", 2, 0, 0, 0, 0, 0, r);
    append((const u8 *)",", 1), append((u8 *)r[4], r[5]);
  }
  append((const u8 *)"]", 1);
  if (n == 2) *(u8 *)&result[3] = 1, result[4] = (u32) "nothing", result[5] = 7;
  else *(u8 *)&result[0] = 1, result[1] = (u32)text, result[2] = length;
  return result;
}

static u32 *constant(const char *s, u32 n) {
  result[0] = (u32)s, result[1] = n;
  return result;
}
EXPORT("schema") u32 *schema(void) { return constant("{\"type\":\"object\"}", 17); }
EXPORT("description") u32 *description(void) { return constant("Returns \"it\".", 13); }
