// Memory of the guest side, the handles of the component's instances, and how it ends.

static void write_log(i32 fd, const void *p, u32 n) {
  struct text area = {p, n};
  u32 done;
  host_write(fd, &area, 1, &done);
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
    u32 block = n > 0x3f00 ? n : 0x3f00;
    if (block + 8 < n) __builtin_trap();
    free_from = (link_more(block + 8) + 7) & ~7u;
    free_to = free_from + block;
  }
  void *p = (void *)free_from;
  free_from += n;
  return p;
}

static void *alloc_zero(u32 n) { return zero(alloc(n), n); }

static struct text keep(const void *p, u32 n) {
  struct text t = {alloc(n), n};
  copy(t.p, p, n);
  return t;
}

// Scratch memory is freed in the opposite order: scratch_to is set back.
struct block {
  struct block *before, *after;
  u32 end;
};
static struct block *scratch_block;
static u32 scratch_to;

static u32 scratch(u32 n) {
  n = (n + 7) & ~7u;
  while (!scratch_block || n > scratch_block->end - scratch_to) {
    struct block *b = scratch_block ? scratch_block->after : 0;
    if (!b) {
      u32 size = n > 0x8000 ? n : 0x8000;
      b = alloc(sizeof *b + size);
      *b = (struct block){scratch_block, 0, (u32)(b + 1) + size};
      if (scratch_block) scratch_block->after = b;
    }
    scratch_block = b;
    scratch_to = (u32)(b + 1);
  }
  u32 p = scratch_to;
  scratch_to += n;
  return p;
}

struct mark {
  struct block *block;
  u32 to;
};
static struct mark scratch_mark(void) { return (struct mark){scratch_block, scratch_to}; }
static void scratch_free(struct mark m) {
  if (!m.block && scratch_block) { // from the first block on
    for (m.block = scratch_block; m.block->before; m.block = m.block->before) {}
    m.to = (u32)(m.block + 1);
  }
  scratch_block = m.block;
  scratch_to = m.to;
}

// in_memory checks that an area of the component is inside of memory, and aligned.
static void in_memory(u32 p, u64 n, u32 align) {
  if (p & (align - 1)) BROKEN("an address is not aligned");
  if (p + n > (u64)__builtin_wasm_memory_size(0) << 16) BROKEN("an address is outside of memory");
}

// give copies bytes to a list that the component gets; pair is where its address and length go.
static void give(u32 pair, const void *p, u32 n) {
  u32 to = link_realloc(0, 0, 1, n); // also for nothing: the preview 1 adapter counts on it
  in_memory(to, n, 1);
  copy(to, p, n);
  AT32(pair) = to;
  AT32(pair + 4) = n;
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
  u32 type; // 0: free, and rep is the next free one
  u32 rep;
  u32 owner;  // the instance that defines the resource
  u32 lends;  // calls that borrow it now
  u32 *scope; // a borrowed one counts here until it is dropped
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
  if (instance >= tables_room) {
    u32 room = instance < 4 ? 4 : 2 * instance;
    struct table *more = alloc_zero(room * sizeof *more);
    copy(more, tables, tables_room * sizeof *more);
    tables = more;
    tables_room = room;
  }
  return &tables[instance];
}

static u32 handle_new(u32 instance, struct handle h) {
  struct table *t = table_of(instance);
  u32 i = t->free;
  if (i) {
    t->free = t->handles[i].rep;
  } else {
    if (t->n == t->room) {
      u32 room = t->room ? 2 * t->room : 16;
      struct handle *more = alloc(room * sizeof *more);
      if (t->n) copy(more, t->handles, t->n * sizeof *more);
      else more[t->n++].type = NONE;
      t->handles = more;
      t->room = room;
    }
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

// memcmp and strlen are for the compiler, which makes calls of them.
__attribute__((visibility("hidden"))) int memcmp(const void *a, const void *b, unsigned long n) {
  const volatile u8 *x = a, *y = b;
  for (; n; n--, x++, y++)
    if (*x != *y) return *x < *y ? -1 : 1;
  return 0;
}
__attribute__((visibility("hidden"))) unsigned long strlen(const char *s) {
  const volatile char *p = s;
  while (*p) p++;
  return p - s;
}
