// Memory of the guest side, the handles of the component's instances, and how it ends.

static void write_log(i32 fd, const void *p, u32 n) {
  struct text area = {p, n};
  u32 done;
  host_write(fd, &area, 1, &done);
}

static u32 length(const char *s) {
  u32 n = 0;
  while (s[n]) n++;
  return n;
}

// broken ends the call: the component does not keep to the canonical ABI.
SLOW static _Noreturn void broken(const char *why, u32 n) {
  write_log(2, "component: ", 11);
  write_log(2, why, n);
  write_log(2, "\n", 1);
  __builtin_trap();
}
#define BROKEN(why) broken(why, sizeof(why) - 1)

static u32 free_from, free_to;

static void *alloc(u32 n) {
  n = (n + 7) & ~7u;
  if (n > free_to - free_from) {
    u32 block = n > 0x3f00 ? n : 0x3f00, more;
    if (block + 8 < n || !(more = link_more(block + 8))) __builtin_trap(); // 0: malloc has no room
    free_from = (more + 7) & ~7u;
    free_to = free_from + block;
  }
  void *p = (void *)free_from;
  free_from += n;
  return p;
}

static void *alloc_zero(u32 n) { return zero(alloc(n), n); }

// grow makes room for more things of a size than the n that there are.
static void *grow(void *p, u32 n, u32 more, u32 size, u32 *room) {
  if (more <= *room - n) return p;
  u64 bytes = (2 * (u64)n + more + 8) * size;
  if (bytes > 0x7fffffff) __builtin_trap();
  *room = 2 * n + more + 8;
  return copy(alloc_zero(bytes), p, n * size);
}

static struct text keep(const void *p, u32 n) { return (struct text){copy(alloc(n), p, n), n}; }

// document copies JSON, with the zero byte and the slack behind it that reading needs.
static const u8 *document(const void *p, u32 n) {
  u8 *d = alloc(n + 16);
  zero(d + n, 16);
  return copy(d, p, n);
}

// in_memory checks that an area of the component is inside of memory, and aligned.
static void in_memory(u32 p, u64 n, u32 align) {
  if (p & (align - 1)) BROKEN("an address is not aligned");
  if (p + n > (u64)__builtin_wasm_memory_size(0) << 16) BROKEN("an address is outside of memory");
}

// give copies bytes to a list that the component gets. Its address and length go to pair, and
// what is behind them is returned.
static u32 give(u32 pair, const void *p, u32 n) {
  u32 to = link_realloc(0, 0, 1, n); // also for nothing: the preview 1 adapter counts on it
  in_memory(to, n, 1);
  copy(to, p, n);
  AT32(pair) = to;
  AT32(pair + 4) = n;
  return pair + 8;
}

static u32 give_list(u32 pair, u32 n, u32 size) {
  if (n > 0x7fffffff / size) BROKEN("a list is too long");
  u32 to = link_realloc(0, 0, 4, n * size);
  in_memory(to, n * size, 4);
  AT32(pair) = to;
  AT32(pair + 4) = n;
  return to;
}

// Each instance of the component has a table of handles. Index 0 is none. Free entries are
// used again, the last first.
struct handle {
  u32 type, rep;    // type 0: it is free, and rep is the next free one
  u32 owner, lends; // the instance that defines the resource; calls that borrow it now
  u32 *scope;       // a borrowed one counts here until it is dropped
};
struct table {
  struct handle *handles;
  u32 n, room, free;
};
static struct table *tables;
static u32 tables_room;

// Resources of the guest side, and those of the component from RESOURCE on.
enum { NONE, ERROR, INPUT, OUTPUT, POLLABLE, NETWORK, FIELDS, REQUEST, OUT_BODY, OPTIONS, FUTURE, RESPONSE, IN_BODY, TRAILERS, RESOURCE };

static struct table *table_of(u32 instance) {
  if (instance >= tables_room) tables = grow(tables, tables_room, instance + 1 - tables_room, sizeof *tables, &tables_room);
  return &tables[instance];
}

static u32 handle_new(u32 instance, struct handle h) {
  struct table *t = table_of(instance);
  u32 i = t->free;
  if (i) {
    t->free = t->handles[i].rep;
  } else {
    t->handles = grow(t->handles, t->n, 2, sizeof h, &t->room);
    if (!t->n) t->n = 1;
    i = t->n++;
  }
  t->handles[i] = h;
  return i;
}

static struct handle *handle_get(u32 instance, u32 type, u32 i) {
  struct table *t = table_of(instance);
  if (!i || i >= t->n || !t->handles[i].type) BROKEN("unknown handle");
  if (t->handles[i].type != type) BROKEN("a handle of another resource");
  return &t->handles[i];
}

// handle_take removes a handle from its table.
static struct handle handle_take(u32 instance, u32 type, u32 i) {
  struct handle *at = handle_get(instance, type, i), h = *at;
  struct table *t = table_of(instance);
  if (h.lends) BROKEN("a handle that is lent cannot go");
  at->type = NONE;
  at->rep = t->free;
  t->free = i;
  return h;
}

// Handles of the guest side's resources, for the instance that calls.
static u32 own(u32 type, const void *rep) { return handle_new(link_instance(), (struct handle){type, (u32)rep, ~0u, 0, 0}); }
static void *use(u32 type, u32 i) { return (void *)handle_get(link_instance(), type, i)->rep; }
static void *take(u32 type, u32 i) {
  struct handle h = handle_take(link_instance(), type, i);
  if (h.scope) BROKEN("a borrowed handle cannot be given away");
  return (void *)h.rep;
}
static void drop(u32 type, u32 i) {
  struct handle h = handle_take(link_instance(), type, i);
  if (h.scope) --*h.scope;
}

EXPORT("resource_new") u32 resource_new(u32 instance, u32 resource, u32 rep) {
  return handle_new(instance, (struct handle){RESOURCE + resource, rep, instance, 0, 0});
}
EXPORT("resource_rep") u32 resource_rep(u32 instance, u32 resource, u32 i) { return handle_get(instance, RESOURCE + resource, i)->rep; }
EXPORT("resource_drop") void resource_drop(u32 instance, u32 resource, u32 i) {
  struct handle h = handle_take(instance, RESOURCE + resource, i);
  if (h.scope) --*h.scope;
  else link_dtor(resource, h.rep);
}
