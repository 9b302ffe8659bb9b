// WASI 0.2 on preview 1: the command line, clocks, random numbers, streams and polls. Nothing
// can be opened, so there are no files and no sockets.

// The body of a request. It ends when it is finished, or given up.
struct body {
  u8 *p;
  u32 n, room, taken, end;
};
// Streams: of standard input, or of a text; of a file descriptor, or of a body.
struct input {
  u32 stdin;
  struct text rest;
};
struct output {
  i32 fd;
  struct body *body;
};

static void add_body(struct body *b, const void *p, u32 n) {
  b->p = grow(b->p, b->n, n, 1, &b->room);
  copy(b->p + b->n, p, n);
  b->n += n;
}

// ---- wasi:cli

// text_of returns the text of a JSON value: that of a string is what it means.
static struct text text_of(const u8 *value, const u8 **end) {
  struct text t = {value, 0};
  if (*value == '"') *end = read_text(value, &t);
  else if ((*end = skip(value))) t.n = *end - value;
  return t;
}

// give_variables gives the variables of the call as a list of pairs.
static void give_variables(u32 pair) {
  struct text key, value;
  u32 n = 0;
  const u8 *p = variables;
  for (; p && (p = each(p, &key)); p = skip(p)) n++;
  u32 list = give_list(pair, n, 16);
  p = variables;
  while (p && (p = each(p, &key))) {
    value = text_of(p, &p);
    list = give(give(list, key.p, key.n), value.p, value.n);
  }
}

// The environment has the variables of the call, which a tool gets in its document, and a
// command from WASI.
EXPORT("wasi:cli/environment@0.2#get-environment") void get_environment(u32 to) {
  u32 n, size;
  if (variables) {
    give_variables(to);
    return;
  }
  host_environ_sizes(&n, &size);
  u32 *all = alloc(4 * n);
  host_environ(all, alloc(size));
  u32 list = give_list(to, n, 16);
  for (u32 i = 0; i < n; i++) {
    const char *name = (const char *)all[i];
    u32 name_n = 0, whole = length(name);
    while (name_n < whole && name[name_n] != '=') name_n++;
    u32 value = name_n < whole ? name_n + 1 : whole;
    list = give(give(list, name, name_n), name + value, whole - value);
  }
}
EXPORT("wasi:cli/environment@0.2#get-arguments") void get_arguments(u32 to) {
  u32 n, size;
  host_args_sizes(&n, &size);
  u32 *arguments = alloc(4 * n);
  host_args(arguments, alloc(size));
  u32 list = give_list(to, n, 8);
  for (u32 i = 0; i < n; i++) list = give(list, (void *)arguments[i], length((char *)arguments[i]));
}
EXPORT("wasi:cli/environment@0.2#initial-cwd") void initial_cwd(u32 to) { AT8(to) = 0; }
EXPORT("wasi:cli/exit@0.2#exit") void cli_exit(u32 failed) { host_exit(failed); }
EXPORT("wasi:cli/exit@0.2#exit-with-code") void cli_exit_with_code(u32 code) { host_exit(code); }

static u32 new_input(u32 stdin, struct text rest) {
  struct input *s = alloc(sizeof *s);
  *s = (struct input){stdin, rest};
  return own(INPUT, s);
}
static u32 new_output(i32 fd, struct body *body) {
  struct output *s = alloc(sizeof *s);
  *s = (struct output){fd, body};
  return own(OUTPUT, s);
}
EXPORT("wasi:cli/stdin@0.2#get-stdin") u32 get_stdin(void) { return new_input(1, TEXT("")); }
EXPORT("wasi:cli/stdout@0.2#get-stdout") u32 get_stdout(void) { return new_output(1, 0); }
EXPORT("wasi:cli/stderr@0.2#get-stderr") u32 get_stderr(void) { return new_output(2, 0); }
EXPORT("wasi:cli/terminal-stdin@0.2#get-terminal-stdin") void terminal_stdin(u32 to) { AT8(to) = 0; }
EXPORT("wasi:cli/terminal-stdout@0.2#get-terminal-stdout") void terminal_stdout(u32 to) { AT8(to) = 0; }
EXPORT("wasi:cli/terminal-stderr@0.2#get-terminal-stderr") void terminal_stderr(u32 to) { AT8(to) = 0; }

// ---- wasi:config

EXPORT("wasi:config/store@0.2#get") void config_get(const u8 *key, u32 n, u32 to) {
  const u8 *value = member(variables, keep(key, n)); // compared in words, which memory might not have behind it
  AT8(to) = 0;
  AT8(to + 4) = value != 0;
  if (value) {
    struct text t = text_of(value, &value);
    give(to + 8, t.p, t.n);
  }
}
EXPORT("wasi:config/store@0.2#get-all") void config_get_all(u32 to) {
  AT8(to) = 0;
  give_variables(to + 4);
}

// ---- wasi:io/streams

#define STREAMS "wasi:io/streams@0.2#"

// settle writes a result of a stream: good, or "closed" where the payload is.
static void settle(u32 to, u32 payload, u32 good) {
  AT8(to) = !good;
  if (!good) AT8(to + payload) = 1;
}

// put writes to a stream; it returns 0 if that is closed.
static u32 put(u32 self, const void *p, u32 n) {
  struct output *s = use(OUTPUT, self);
  if (s->fd && n) write_log(s->fd, p, n);
  if (s->fd) return 1;
  if (s->body->end) return 0;
  add_body(s->body, p, n);
  return 1;
}
static void put_zeroes(u32 self, u64 n, u32 to) {
  u8 zeroes[256] = {0};
  u32 good = put(self, 0, 0);
  for (; good && n; n -= n < 256 ? n : 256) put(self, zeroes, n < 256 ? n : 256);
  settle(to, 4, good);
}
EXPORT(STREAMS "[method]output-stream.check-write") void check_write(u32 self, u32 to) {
  AT64(to + 8) = 1 << 20;
  settle(to, 8, put(self, 0, 0));
}
EXPORT(STREAMS "[method]output-stream.write") void write1(u32 self, const void *p, u32 n, u32 to) { settle(to, 4, put(self, p, n)); }
EXPORT(STREAMS "[method]output-stream.blocking-write-and-flush") void write2(u32 self, const void *p, u32 n, u32 to) { settle(to, 4, put(self, p, n)); }
EXPORT(STREAMS "[method]output-stream.flush") void flush1(u32 self, u32 to) { settle(to, 4, put(self, 0, 0)); }
EXPORT(STREAMS "[method]output-stream.blocking-flush") void flush2(u32 self, u32 to) { settle(to, 4, put(self, 0, 0)); }
EXPORT(STREAMS "[method]output-stream.write-zeroes") void zeroes1(u32 self, u64 n, u32 to) { put_zeroes(self, n, to); }
EXPORT(STREAMS "[method]output-stream.blocking-write-zeroes-and-flush") void zeroes2(u32 self, u64 n, u32 to) { put_zeroes(self, n, to); }
EXPORT(STREAMS "[resource-drop]output-stream") void output_drop(u32 self) { drop(OUTPUT, self); }

// get reads at most n bytes of a stream; none are its end.
static struct text get(u32 self, u64 n) {
  struct input *s = use(INPUT, self);
  struct text t = {s->rest.p, n < 65536 ? n : 65536};
  if (s->stdin) {
    t.p = alloc(t.n);
    host_read(0, &t, 1, &t.n);
  } else {
    if (t.n > s->rest.n) t.n = s->rest.n;
    s->rest = (struct text){t.p + t.n, s->rest.n - t.n};
  }
  return t;
}
static void read_stream(u32 self, u64 n, u32 to) {
  struct text t = get(self, n);
  if (t.n || !n) give(to + 4, t.p, t.n);
  settle(to, 4, t.n || !n);
}
static void skip_stream(u32 self, u64 n, u32 to) {
  AT64(to + 8) = get(self, n).n;
  settle(to, 8, AT64(to + 8) || !n);
}
static void splice_stream(u32 self, u32 from, u64 n, u32 to) {
  struct text t = get(from, n);
  AT64(to + 8) = t.n;
  settle(to, 8, put(self, t.p, t.n) && (t.n || !n));
}
EXPORT(STREAMS "[method]input-stream.read") void input_read1(u32 self, u64 n, u32 to) { read_stream(self, n, to); }
EXPORT(STREAMS "[method]input-stream.blocking-read") void input_read2(u32 self, u64 n, u32 to) { read_stream(self, n, to); }
EXPORT(STREAMS "[method]input-stream.skip") void input_skip1(u32 self, u64 n, u32 to) { skip_stream(self, n, to); }
EXPORT(STREAMS "[method]input-stream.blocking-skip") void input_skip2(u32 self, u64 n, u32 to) { skip_stream(self, n, to); }
EXPORT(STREAMS "[method]output-stream.splice") void output_splice1(u32 self, u32 from, u64 n, u32 to) { splice_stream(self, from, n, to); }
EXPORT(STREAMS "[method]output-stream.blocking-splice") void output_splice2(u32 self, u32 from, u64 n, u32 to) { splice_stream(self, from, n, to); }
EXPORT(STREAMS "[resource-drop]input-stream") void input_drop(u32 self) { drop(INPUT, self); }
EXPORT("wasi:io/error@0.2#[method]error.to-debug-string") void error_text(u32 self, u32 to) {
  struct text *t = use(ERROR, self);
  give(to, t->p, t->n);
}
EXPORT("wasi:io/error@0.2#[resource-drop]error") void error_drop(u32 self) { drop(ERROR, self); }

// ---- wasi:io/poll and wasi:clocks

// A pollable is ready when its time has come and its body is finished. One of a response waits
// for the body of its request: the exchange is made when the response is asked for.
struct pollable {
  u64 when; // of the monotonic clock
  const struct body *body;
};
static u32 new_pollable(u64 when, const struct body *body) {
  struct pollable *p = alloc(sizeof *p);
  *p = (struct pollable){when, body};
  return own(POLLABLE, p);
}
static u64 now(i32 clock) {
  u64 t = 0;
  host_time(clock, 1, &t);
  return t;
}
EXPORT("wasi:clocks/monotonic-clock@0.2#now") u64 monotonic_now(void) { return now(1); }
EXPORT("wasi:clocks/monotonic-clock@0.2#resolution") u64 monotonic_resolution(void) { return 1000; }
EXPORT("wasi:clocks/monotonic-clock@0.2#subscribe-instant") u32 subscribe_instant(u64 when) { return new_pollable(when, 0); }
EXPORT("wasi:clocks/monotonic-clock@0.2#subscribe-duration") u32 subscribe_duration(u64 d) {
  u64 from = now(1);
  return new_pollable(from + d < from ? ~0ull : from + d, 0);
}
EXPORT("wasi:clocks/wall-clock@0.2#now") void wall_now(u32 to) {
  u64 t = now(0);
  AT64(to) = t / 1000000000;
  AT32(to + 8) = t % 1000000000;
}
EXPORT("wasi:clocks/wall-clock@0.2#resolution") void wall_resolution(u32 to) {
  AT64(to) = 0;
  AT32(to + 8) = 1000;
}
EXPORT(STREAMS "[method]input-stream.subscribe") u32 input_subscribe(u32 self) { return use(INPUT, self), new_pollable(0, 0); }
EXPORT(STREAMS "[method]output-stream.subscribe") u32 output_subscribe(u32 self) { return use(OUTPUT, self), new_pollable(0, 0); }

static u32 ready(const struct pollable *p) { return p->body ? p->body->end : !p->when || now(1) >= p->when; }

static void sleep_until(u64 when) {
  struct {
    u64 data;
    u32 tag, unused, clock, unused2;
    u64 when, precision, flags;
  } subscription = {.clock = 1, .when = when, .flags = 1};
  u64 event[4];
  u32 n;
  host_poll(&subscription, event, 1, &n);
}

#define WAITS_FOREVER "it waits for something that never happens"
EXPORT("wasi:io/poll@0.2#[method]pollable.ready") u32 pollable_ready(u32 self) { return ready(use(POLLABLE, self)); }
EXPORT("wasi:io/poll@0.2#[method]pollable.block") void pollable_block(u32 self) {
  const struct pollable *p = use(POLLABLE, self);
  while (!ready(p)) {
    if (p->body) BROKEN(WAITS_FOREVER);
    sleep_until(p->when);
  }
}
EXPORT("wasi:io/poll@0.2#poll") void poll(const u32 *list, u32 n, u32 to) {
  if (!n) BROKEN("a poll of nothing");
  u32 *found = (u32 *)link_realloc(0, 0, 4, 4 * n), count = 0;
  in_memory((u32)found, 4 * (u64)n, 4);
  for (;;) {
    u64 first = ~0ull;
    for (u32 i = 0; i < n; i++) {
      const struct pollable *p = use(POLLABLE, list[i]);
      if (ready(p)) found[count++] = i;
      else if (!p->body && p->when < first) first = p->when;
    }
    if (count) break;
    if (first == ~0ull) BROKEN(WAITS_FOREVER);
    sleep_until(first);
  }
  AT32(to) = (u32)found;
  AT32(to + 4) = count;
}
EXPORT("wasi:io/poll@0.2#[resource-drop]pollable") void pollable_drop(u32 self) { drop(POLLABLE, self); }

// ---- wasi:random

static void give_random(u64 n, u32 to) {
  if (n > 0x7fffffff) BROKEN("too many random bytes");
  u32 p = link_realloc(0, 0, 1, n);
  in_memory(p, n, 1);
  host_random((void *)p, n);
  AT32(to) = p;
  AT32(to + 4) = n;
}
static u64 random_bits(void) {
  u64 r = 0;
  host_random(&r, 8);
  return r;
}
EXPORT("wasi:random/random@0.2#get-random-bytes") void random_bytes(u64 n, u32 to) { give_random(n, to); }
EXPORT("wasi:random/random@0.2#get-random-u64") u64 random_u64(void) { return random_bits(); }
EXPORT("wasi:random/insecure@0.2#get-insecure-random-bytes") void insecure_bytes(u64 n, u32 to) { give_random(n, to); }
EXPORT("wasi:random/insecure@0.2#get-insecure-random-u64") u64 insecure_u64(void) { return random_bits(); }
EXPORT("wasi:random/insecure-seed@0.2#insecure-seed") void insecure_seed(u32 to) {
  AT64(to) = random_bits();
  AT64(to + 8) = random_bits();
}

// ---- wasi:filesystem and wasi:sockets

EXPORT("wasi:filesystem/preopens@0.2#get-directories") void get_directories(u32 to) { give_list(to, 0, 8); }
EXPORT("wasi:filesystem/types@0.2#filesystem-error-code") void filesystem_error(u32 error, u32 to) { AT8(to) = use(ERROR, error) == 0; }
static void denied(u32 to) {
  AT8(to) = 1;
  AT8(to + 4) = 1; // access-denied
}
EXPORT("wasi:sockets/instance-network@0.2#instance-network") u32 instance_network(void) { return own(NETWORK, 0); }
EXPORT("wasi:sockets/network@0.2#[resource-drop]network") void network_drop(u32 self) { drop(NETWORK, self); }
EXPORT("wasi:sockets/tcp-create-socket@0.2#create-tcp-socket") void create_tcp(u32 family, u32 to) { denied(to); }
EXPORT("wasi:sockets/udp-create-socket@0.2#create-udp-socket") void create_udp(u32 family, u32 to) { denied(to); }
EXPORT("wasi:sockets/ip-name-lookup@0.2#resolve-addresses") void resolve_addresses(u32 network, const u8 *p, u32 n, u32 to) {
  use(NETWORK, network);
  denied(to);
}
