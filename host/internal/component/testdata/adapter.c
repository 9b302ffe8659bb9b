// A component of a program for preview 1, which an adapter makes one for WASI 0.2: build.mjs makes
// adapter.wasm of it, with four core modules.
typedef unsigned int u32;
typedef unsigned long long u64;
#define EXPORT(name) __attribute__((export_name(name)))
#define WASI(name) __attribute__((import_module("wasi_snapshot_preview1"), import_name(name)))

WASI("fd_write") int fd_write(int fd, const void *vectors, u32 n, u32 *written);
WASI("clock_time_get") int clock_time_get(int clock, u64 precision, u64 *time);
WASI("random_get") int random_get(void *to, u32 n);

extern unsigned char __heap_base;
static u32 top;
EXPORT("cabi_realloc") void *cabi_realloc(void *old, u32 old_size, u32 align, u32 size) {
  if (!top) top = (u32)&__heap_base;
  top = (top + align - 1) & -align;
  void *p = (void *)top;
  top += size;
  u32 pages = (top + 0xffff) >> 16, have = __builtin_wasm_memory_size(0);
  if (pages > have && __builtin_wasm_memory_grow(0, pages - have) == -1u) __builtin_trap();
  return p;
}

static u32 started;
static int thrice(int n) { return 3 * n; }
static int twice(int n) { return 2 * n; }
static int (*volatile table[])(int) = {twice, thrice};

// Called before anything else, as a constructor of C is.
EXPORT("_initialize") void initialize(void) { started = 1; }

// Writes a line to the log and computes through a function pointer.
EXPORT("RUN-it") u32 run_it(u32 which, int n) {
  static const char line[] = "run-it was here\n";
  struct { const char *p; u32 n; } vector = {line, sizeof line - 1};
  u32 written;
  u64 time, random;
  if (fd_write(2, &vector, 1, &written) || clock_time_get(0, 1, &time) || random_get(&random, 8)) return 0;
  return started * table[which & 1](n) + (time == 0) + (random == 0);
}
