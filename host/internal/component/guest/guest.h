// The guest side of a component: the interfaces that it imports, its resources, and JSON to
// and from the values of its functions. The linker joins it with the component's core modules
// in one memory. It frees nothing: each call has an instance to itself.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name), used, visibility("default")))
#define SLOW __attribute__((noinline, cold))
#define APART __attribute__((noinline)) // so that its caller needs less stack

// What the linker makes.
IMPORT("link", "more") u32 link_more(u32 n);
IMPORT("link", "realloc") u32 link_realloc(u32 old, u32 old_size, u32 align, u32 n);
IMPORT("link", "instance") u32 link_instance(void);
IMPORT("link", "call") void link_call(u32 function, u64 *arguments, u64 *results);
IMPORT("link", "post") void link_post(u32 function, u64 *results);
IMPORT("link", "arg_realloc") u32 link_arg_realloc(u32 function, u32 align, u32 n);
IMPORT("link", "dtor") void link_dtor(u32 resource, u32 rep);
IMPORT("link", "descriptors") u32 link_descriptors(void);

// What the host has.
IMPORT("starling:v1", "http") i64 host_http(const void *request, u32 n, void *buffer, u32 room);
IMPORT("wasi_snapshot_preview1", "clock_time_get") i32 host_time(i32 clock, i64 precision, u64 *t);
IMPORT("wasi_snapshot_preview1", "random_get") i32 host_random(void *p, u32 n);
IMPORT("wasi_snapshot_preview1", "fd_write") i32 host_write(i32 fd, const void *areas, u32 n, u32 *done);
IMPORT("wasi_snapshot_preview1", "fd_read") i32 host_read(i32 fd, const void *areas, u32 n, u32 *done);
IMPORT("wasi_snapshot_preview1", "poll_oneoff") i32 host_poll(const void *in, void *out, u32 n, u32 *done);
IMPORT("wasi_snapshot_preview1", "args_sizes_get") i32 host_args_sizes(u32 *n, u32 *size);
IMPORT("wasi_snapshot_preview1", "args_get") i32 host_args(u32 *arguments, u8 *text);
IMPORT("wasi_snapshot_preview1", "environ_sizes_get") i32 host_environ_sizes(u32 *n, u32 *size);
IMPORT("wasi_snapshot_preview1", "environ_get") i32 host_environ(u32 *variables, u8 *text);
IMPORT("wasi_snapshot_preview1", "proc_exit") _Noreturn void host_exit(u32 code);

#define copy(to, from, n) __builtin_memcpy((void *)(to), (const void *)(from), (n))
#define zero(to, n) __builtin_memset((void *)(to), 0, (n))
#define AT8(p) (*(u8 *)(p))
#define AT16(p) (*(u16 *)(p))
#define AT32(p) (*(u32 *)(p))
#define AT64(p) (*(u64 *)(p))

struct text {
  const u8 *p;
  u32 n;
};
#define TEXT(s) ((struct text){(const u8 *)(s), sizeof(s) - 1})
