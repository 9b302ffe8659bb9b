// A provider of ACT with three tools: one returns its arguments, one several parts, one fails.
typedef unsigned char u8;
typedef unsigned u32;
#define INTERFACE "act:tools/tool-provider@0.1.0"
#define EXPORT(name) __attribute__((export_name(name)))
#define IMPORT(name) __attribute__((import_module("[export]" INTERFACE), import_name(name)))

IMPORT("[task-return]list-tools") void list_return(u32, u32, u32, u32, u32, u32, u32, u32);
IMPORT("[task-return]call-tool") void call_return(u32, const void *, u32);

static u8 heap[1 << 16];
static u32 used;
EXPORT("cabi_realloc") void *cabi_realloc(void *old, u32 old_size, u32 align, u32 n) {
  used = (used + 15) & -16u;
  used += n;
  return heap + used - n;
}

struct text { const char *p; u32 n; };
#define TEXT(s) {s, sizeof(s) - 1}
struct tool { struct text name; u32 localized; struct text description, schema; const void *metadata; u32 metadata_n; };
struct part { u32 error; struct text data; u32 typed; struct text type; const void *metadata; u32 metadata_n; };
struct failure { u32 error; struct text kind; u32 localized; struct text message; const void *metadata; u32 metadata_n; };

static const struct { struct text key, value; } idempotent[] = {{TEXT("std:idempotent"), TEXT("\xf5")}};
static const struct text languages[] = {TEXT("en"), TEXT("Several parts")};
static const struct tool tools[] = {
    {TEXT("echo"), 0, TEXT("What it gets"), TEXT("{\"properties\":{}}"), idempotent, 1},
    {TEXT("parts"), 1, {(const char *)languages, 1}, TEXT("{\"type\":\"object\"}"), 0, 0},
    {TEXT("fails"), 0, TEXT("Fails"), TEXT("{}"), 0, 0},
};
static struct part parts[3] = {
    {0, TEXT("h\xc3\xa9"), 1, TEXT("text/plain"), 0, 0},
    {0, TEXT("{\"a\":1}"), 1, TEXT("application/json"), 0, 0},
    {0, TEXT("\1\2\3\4"), 0, TEXT(""), 0, 0},
};
static const struct failure failure = {1, TEXT("std:internal"), 0, TEXT("it broke"), 0, 0};

EXPORT("[async-lift]" INTERFACE "#list-tools") u32 list_tools(u32 p, u32 n) {
  list_return(0, 0, 0, (u32)tools, 3, 0, 0, 0);
  return 0;
}
EXPORT("[callback][async-lift]" INTERFACE "#list-tools") u32 list_callback(u32 a, u32 b, u32 c) { return 0; }

static struct part echo = {0, {0, 0}, 1, TEXT("application/cbor"), 0, 0};
EXPORT("[async-lift]" INTERFACE "#call-tool") u32 call_tool(const char *name, u32 n, const char *arguments, u32 arguments_n, u32 p, u32 m) {
  if (*name == 'f') call_return(0, &failure, 1);
  else if (*name == 'p') call_return(0, parts, 3);
  else {
    echo.data = (struct text){arguments, arguments_n};
    return 1; // yield
  }
  return 0;
}
EXPORT("[callback][async-lift]" INTERFACE "#call-tool") u32 call_callback(u32 a, u32 b, u32 c) {
  call_return(0, &echo, 1);
  return 0;
}
