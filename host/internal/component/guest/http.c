// wasi:http on the import http of starling:v1: requests of the component, complete in memory.

struct field {
  struct text name, value;
};
struct fields {
  struct field *all;
  u32 n, room, frozen;
};
struct request {
  u32 method, scheme, has_path, has_authority; // scheme: 0 http, 1 https, 3 none
  struct text other_method, path, authority;
  struct fields *headers;
  struct body *body;
};
struct response {
  u32 status, consumed, streamed;
  struct fields *headers;
  struct text body;
};
struct future {
  struct request *request;
  u32 got;
};

static u8 lower(u8 c) { return c - 'A' < 26u ? c | 32 : c; }
static u32 same_name(struct text a, struct text b) {
  u32 i = 0;
  if (a.n != b.n) return 0;
  while (i < a.n && lower(a.p[i]) == lower(b.p[i])) i++;
  return i == a.n;
}

static void add_field(struct fields *f, struct text name, struct text value) {
  f->all = grow(f->all, f->n, 1, sizeof *f->all, &f->room);
  f->all[f->n++] = (struct field){name, value};
}

// is_made_of checks the bytes of a text: of a token (a name, a method), of an address, of a value.
enum { TOKEN, ADDRESS, VALUE };
static u32 is_made_of(u32 what, struct text t) {
  for (u32 i = 0; i < t.n; i++) {
    u8 c = t.p[i];
    u32 mark = c == '!' || (c >= '#' && c <= '\'') || c == '*' || c == '+' || c == '-' || c == '.' || c == '^' || c == '_' || c == '`' || c == '|' || c == '~';
    if (what == TOKEN ? !mark && lower(c) - 'a' >= 26u && c - '0' >= 10u : c == 0x7f || (what == ADDRESS ? c <= ' ' : c < ' ' && c != '\t')) return 0;
  }
  return t.n || what != TOKEN;
}

// write_header leaves out the headers that the host or this side writes.
static void write_header(struct body *b, struct text name, struct text value) {
  const char *managed = "host\0connection\0content-length\0transfer-encoding\0keep-alive\0proxy-connection\0te\0trailer\0upgrade\0";
  for (; *managed; managed += length(managed) + 1)
    if (same_name(name, (struct text){(const u8 *)managed, length(managed)})) return;
  add_body(b, name.p, name.n);
  add_body(b, ": ", 2);
  add_body(b, value.p, value.n);
  add_body(b, "\r\n", 2);
}

// write_headers writes the members of an object in JSON.
static void write_headers(struct body *b, const u8 *p) {
  struct text name, value;
  while (p && (p = each(p, &name))) {
    value = text_of(p, &p);
    if (is_made_of(TOKEN, name) && is_made_of(VALUE, value)) write_header(b, name, value);
  }
}

// write_line begins a request, and write_body ends its headers.
static void write_line(struct body *b, struct text method, struct text url) {
  add_body(b, method.p, method.n);
  add_body(b, " ", 1);
  add_body(b, url.p, url.n);
  add_body(b, " HTTP/1.1\r\n", 11);
}
static void write_body(struct body *b, struct text body) {
  u8 digits[12];
  if (body.n) {
    add_body(b, "Content-Length: ", 16);
    add_body(b, digits, write_number(digits, body.n) - digits);
    add_body(b, "\r\n", 2);
  }
  add_body(b, "\r\n", 2);
  add_body(b, body.p, body.n);
}

// exchange sends a request. It returns 0, or a failure of the host with its text, which is
// logged too: few error codes of WASI have room for it.
static i32 exchange(const struct body *request, struct response *r, struct text *text) {
  u32 room = 0x2000, line = 0;
  u8 *b = alloc(room);
  i64 n = host_http(request->p, request->n, b, room), failed = n < 0 ? n : 0;
  if (failed) n = host_http(0, 0, b, room);
  if (n > room) n = host_http(0, 0, b = alloc(n), n);
  if (failed) {
    *text = (struct text){b, n < 0 ? 0 : n};
    while (line < request->n && line < 200 && request->p[line] != '\r') line++;
    write_log(2, request->p, line);
    write_log(2, ": ", 2);
    write_log(2, b, text->n);
    write_log(2, "\n", 1);
    return failed;
  }
  u8 *p = b + 9, *end = b + n; // behind HTTP/1.1
  *r = (struct response){(p[0] - '0') * 100 + (p[1] - '0') * 10 + p[2] - '0', 0, 0, alloc_zero(sizeof(struct fields)), {0}};
  r->headers->frozen = 1;
  while (*p++ != '\n') {}
  while (*p != '\r') {
    struct text name = {p, 0}, value;
    for (; *p != ':'; p++) *p = lower(*p);
    name.n = p - name.p;
    do p++; while (*p == ' ');
    for (value.p = p; *p != '\r';) p++;
    value.n = p - value.p;
    add_field(r->headers, name, value);
    p += 2;
  }
  r->body = (struct text){p + 2, end - p - 2};
  return 0;
}

// headers_text returns the headers of a response as a JSON object. They are sorted by name.
static struct text headers_text(const struct fields *headers) {
  u8 *w = WRITE(begin(), "{");
  for (const struct field *f = headers->all, *end = f + headers->n; f < end; f++) {
    struct body value = {0};
    struct text name = f->name;
    add_body(&value, f->value.p, f->value.n);
    for (; f + 1 < end && same_name(name, f[1].name); f++) {
      add_body(&value, ", ", 2);
      add_body(&value, f[1].value.p, f[1].value.n);
    }
    w = WRITE(write_text(w, name.p, name.n), ":");
    w = write_text(w, value.p, value.n);
    if (f + 1 < end) w = WRITE(w, ",");
  }
  w = WRITE(w, "}");
  return (struct text){out, w - out};
}

#define HTTP "wasi:http/types@0.2#"

// settable writes whether a header can be set, and the error if it cannot.
static u32 settable(const struct fields *f, struct text name, struct text value, u32 to, u32 payload) {
  AT8(to) = f->frozen || !is_made_of(TOKEN, name) || !is_made_of(VALUE, value);
  if (AT8(to)) AT8(to + payload) = f->frozen ? 2 : 0; // immutable, invalid-syntax
  return !AT8(to);
}
static void remove_fields(struct fields *f, struct text name) {
  u32 kept = 0;
  for (u32 i = 0; i < f->n; i++)
    if (!same_name(f->all[i].name, name)) f->all[kept++] = f->all[i];
  f->n = kept;
}
EXPORT(HTTP "[constructor]fields") u32 fields_new(void) { return own(FIELDS, alloc_zero(sizeof(struct fields))); }
EXPORT(HTTP "[static]fields.from-list") void fields_from_list(const struct field *list, u32 n, u32 to) {
  struct fields *f = alloc_zero(sizeof *f);
  AT8(to) = 0;
  for (u32 i = 0; i < n; i++) {
    struct text name = list[i].name, value = list[i].value;
    if (!settable(f, name, value, to, 4)) return;
    add_field(f, keep(name.p, name.n), keep(value.p, value.n));
  }
  AT32(to + 4) = own(FIELDS, f);
}
EXPORT(HTTP "[method]fields.get") void fields_get(u32 self, const u8 *p, u32 n, u32 to) {
  const struct fields *f = use(FIELDS, self);
  u32 count = 0;
  for (u32 i = 0; i < f->n; i++) count += same_name(f->all[i].name, (struct text){p, n});
  u32 list = give_list(to, count, 8);
  for (u32 i = 0; i < f->n; i++)
    if (same_name(f->all[i].name, (struct text){p, n})) list = give(list, f->all[i].value.p, f->all[i].value.n);
}
EXPORT(HTTP "[method]fields.has") u32 fields_has(u32 self, const u8 *p, u32 n) {
  const struct fields *f = use(FIELDS, self);
  for (u32 i = 0; i < f->n; i++)
    if (same_name(f->all[i].name, (struct text){p, n})) return 1;
  return 0;
}
EXPORT(HTTP "[method]fields.set") void fields_set(u32 self, const u8 *p, u32 n, const struct text *values, u32 count, u32 to) {
  struct fields *f = use(FIELDS, self);
  if (!settable(f, (struct text){p, n}, TEXT(""), to, 1)) return;
  for (u32 i = 0; i < count; i++)
    if (!settable(f, (struct text){p, n}, values[i], to, 1)) return;
  remove_fields(f, (struct text){p, n});
  for (u32 i = 0; i < count; i++) add_field(f, keep(p, n), keep(values[i].p, values[i].n));
}
EXPORT(HTTP "[method]fields.delete") void fields_delete(u32 self, const u8 *p, u32 n, u32 to) {
  struct fields *f = use(FIELDS, self);
  if (settable(f, (struct text){p, n}, TEXT(""), to, 1)) remove_fields(f, (struct text){p, n});
}
EXPORT(HTTP "[method]fields.append") void fields_append(u32 self, const u8 *p, u32 n, const u8 *value, u32 value_n, u32 to) {
  struct fields *f = use(FIELDS, self);
  if (settable(f, (struct text){p, n}, (struct text){value, value_n}, to, 1)) add_field(f, keep(p, n), keep(value, value_n));
}
EXPORT(HTTP "[method]fields.entries") void fields_entries(u32 self, u32 to) {
  const struct fields *f = use(FIELDS, self);
  u32 list = give_list(to, f->n, 16);
  for (const struct field *i = f->all; i < f->all + f->n; i++) list = give(give(list, i->name.p, i->name.n), i->value.p, i->value.n);
}
EXPORT(HTTP "[method]fields.clone") u32 fields_clone(u32 self) {
  struct fields *f = use(FIELDS, self), *g = alloc_zero(sizeof *g);
  for (u32 i = 0; i < f->n; i++) add_field(g, f->all[i].name, f->all[i].value);
  return own(FIELDS, g);
}
EXPORT(HTTP "[resource-drop]fields") void fields_drop(u32 self) { drop(FIELDS, self); }

EXPORT(HTTP "[constructor]outgoing-request") u32 request_new(u32 headers) {
  struct request *r = alloc_zero(sizeof *r);
  r->headers = take(FIELDS, headers);
  r->headers->frozen = 1;
  r->scheme = 3;
  return own(REQUEST, r);
}
EXPORT(HTTP "[method]outgoing-request.body") void request_body(u32 self, u32 to) {
  struct request *r = use(REQUEST, self);
  AT8(to) = r->body != 0;
  if (!r->body) AT32(to + 4) = own(OUT_BODY, r->body = alloc_zero(sizeof *r->body));
}
EXPORT(HTTP "[method]outgoing-request.headers") u32 request_headers(u32 self) { return own(FIELDS, ((struct request *)use(REQUEST, self))->headers); }
EXPORT(HTTP "[method]outgoing-request.set-method") u32 request_set_method(u32 self, u32 method, const u8 *p, u32 n) {
  struct request *r = use(REQUEST, self);
  if (method > 9) BROKEN("a discriminant is out of range");
  if (method == 9 && !is_made_of(TOKEN, (struct text){p, n})) return 1;
  if ((r->method = method) == 9) r->other_method = keep(p, n);
  return 0;
}
EXPORT(HTTP "[method]outgoing-request.set-path-with-query") u32 request_set_path(u32 self, u32 some, const u8 *p, u32 n) {
  struct request *r = use(REQUEST, self);
  if (some && !is_made_of(ADDRESS, (struct text){p, n})) return 1;
  if ((r->has_path = some)) r->path = keep(p, n);
  return 0;
}
EXPORT(HTTP "[method]outgoing-request.set-authority") u32 request_set_authority(u32 self, u32 some, const u8 *p, u32 n) {
  struct request *r = use(REQUEST, self);
  if (some && (!n || !is_made_of(ADDRESS, (struct text){p, n}))) return 1;
  if ((r->has_authority = some)) r->authority = keep(p, n);
  return 0;
}
EXPORT(HTTP "[method]outgoing-request.set-scheme") u32 request_set_scheme(u32 self, u32 some, u32 scheme, const u8 *p, u32 n) {
  struct request *r = use(REQUEST, self);
  if (!some || scheme < 2) r->scheme = some ? scheme : 3;
  return some && scheme > 1;
}
static void give_option(u32 to, u32 some, struct text t) {
  AT8(to) = some;
  if (some) give(to + 4, t.p, t.n);
}
EXPORT(HTTP "[method]outgoing-request.method") void request_method(u32 self, u32 to) {
  struct request *r = use(REQUEST, self);
  AT8(to) = r->method;
  if (r->method == 9) give(to + 4, r->other_method.p, r->other_method.n);
}
EXPORT(HTTP "[method]outgoing-request.path-with-query") void request_path(u32 self, u32 to) {
  struct request *r = use(REQUEST, self);
  give_option(to, r->has_path, r->path);
}
EXPORT(HTTP "[method]outgoing-request.authority") void request_authority(u32 self, u32 to) {
  struct request *r = use(REQUEST, self);
  give_option(to, r->has_authority, r->authority);
}
EXPORT(HTTP "[method]outgoing-request.scheme") void request_scheme(u32 self, u32 to) {
  AT8(to + 4) = ((struct request *)use(REQUEST, self))->scheme;
  AT8(to) = AT8(to + 4) != 3;
}
EXPORT(HTTP "[resource-drop]outgoing-request") void request_drop(u32 self) { drop(REQUEST, self); }

// Timeouts are kept and have no effect: the host's own are in force.
struct options {
  u64 some[3], ns[3];
};
static u32 set_timeout(u32 self, u32 i, u32 some, u64 ns) {
  struct options *o = use(OPTIONS, self);
  o->some[i] = some;
  o->ns[i] = ns;
  return 0;
}
static void get_timeout(u32 self, u32 i, u32 to) {
  struct options *o = use(OPTIONS, self);
  AT8(to) = o->some[i];
  AT64(to + 8) = o->ns[i];
}
EXPORT(HTTP "[constructor]request-options") u32 options_new(void) { return own(OPTIONS, alloc_zero(sizeof(struct options))); }
EXPORT(HTTP "[method]request-options.set-connect-timeout") u32 set_connect(u32 self, u32 some, u64 ns) { return set_timeout(self, 0, some, ns); }
EXPORT(HTTP "[method]request-options.set-first-byte-timeout") u32 set_first_byte(u32 self, u32 some, u64 ns) { return set_timeout(self, 1, some, ns); }
EXPORT(HTTP "[method]request-options.set-between-bytes-timeout") u32 set_between(u32 self, u32 some, u64 ns) { return set_timeout(self, 2, some, ns); }
EXPORT(HTTP "[method]request-options.connect-timeout") void get_connect(u32 self, u32 to) { get_timeout(self, 0, to); }
EXPORT(HTTP "[method]request-options.first-byte-timeout") void get_first_byte(u32 self, u32 to) { get_timeout(self, 1, to); }
EXPORT(HTTP "[method]request-options.between-bytes-timeout") void get_between(u32 self, u32 to) { get_timeout(self, 2, to); }
EXPORT(HTTP "[resource-drop]request-options") void options_drop(u32 self) { drop(OPTIONS, self); }

EXPORT(HTTP "[method]outgoing-body.write") void out_body_write(u32 self, u32 to) {
  struct body *b = use(OUT_BODY, self);
  AT8(to) = b->taken;
  if (!b->taken) AT32(to + 4) = new_output(0, b);
  b->taken = 1;
}
// Bodies end in one of these; trailers are not sent.
enum { FINISHED = 1, GIVEN_UP };
EXPORT(HTTP "[static]outgoing-body.finish") void out_body_finish(u32 self, u32 some, u32 trailers, u32 to) {
  if (some) take(FIELDS, trailers);
  ((struct body *)take(OUT_BODY, self))->end = FINISHED;
  AT8(to) = 0;
}
EXPORT(HTTP "[resource-drop]outgoing-body") void out_body_drop(u32 self) {
  ((struct body *)use(OUT_BODY, self))->end = GIVEN_UP;
  drop(OUT_BODY, self);
}

// Of the error codes, these are used; a size is none.
enum { CONNECTION_REFUSED = 6, REQUEST_DENIED = 15, URI_INVALID = 19, RESPONSE_BODY_SIZE = 28, RESPONSE_TIMEOUT = 33, INTERNAL_ERROR = 38 };
static void give_error(u32 to, u32 code, struct text t) {
  AT8(to) = code;
  AT8(to + 8) = 0;
  if (code == INTERNAL_ERROR) give_option(to + 8, 1, t);
}
EXPORT("wasi:http/outgoing-handler@0.2#handle") void handle(u32 request, u32 some, u32 options, u32 to) {
  struct future *f = alloc_zero(sizeof *f);
  f->request = take(REQUEST, request);
  if (some) take(OPTIONS, options);
  AT8(to) = !f->request->has_authority;
  if (AT8(to)) give_error(to + 8, URI_INVALID, TEXT(""));
  else AT32(to + 8) = own(FUTURE, f);
}
EXPORT(HTTP "[method]future-incoming-response.subscribe") u32 future_subscribe(u32 self) {
  return new_pollable(0, ((struct future *)use(FUTURE, self))->request->body);
}
EXPORT(HTTP "[method]future-incoming-response.get") void future_get(u32 self, u32 to) {
  struct future *f = use(FUTURE, self);
  struct request *r = f->request;
  AT8(to) = !r->body || r->body->end;
  AT8(to + 8) = f->got;
  if (!AT8(to) || f->got) return;
  f->got = 1;
  static const char methods[][8] = {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"};
  if (r->method < 9) r->other_method = (struct text){(const u8 *)methods[r->method], length(methods[r->method])};
  struct body url = {0}, m = {0};
  struct response *response = alloc(sizeof *response);
  struct text failure = TEXT("the body of the request is not finished");
  add_body(&url, r->scheme ? "https://" : "http://", r->scheme ? 8 : 7);
  add_body(&url, r->authority.p, r->authority.n);
  if (!r->has_path || !r->path.n || *r->path.p != '/') add_body(&url, "/", 1);
  if (r->has_path) add_body(&url, r->path.p, r->path.n);
  write_line(&m, r->other_method, (struct text){url.p, url.n});
  for (u32 i = 0; i < r->headers->n; i++) write_header(&m, r->headers->all[i].name, r->headers->all[i].value);
  write_body(&m, r->body ? (struct text){r->body->p, r->body->n} : TEXT(""));
  i32 failed = r->body && r->body->end == GIVEN_UP ? -9 : exchange(&m, response, &failure);
  static const u8 codes[] = {0, REQUEST_DENIED, CONNECTION_REFUSED, RESPONSE_TIMEOUT, RESPONSE_BODY_SIZE, URI_INVALID};
  AT8(to + 16) = failed != 0;
  if (failed) give_error(to + 24, failed < -5 ? INTERNAL_ERROR : codes[-failed], failure);
  else AT32(to + 24) = own(RESPONSE, response);
}
EXPORT(HTTP "[resource-drop]future-incoming-response") void future_drop(u32 self) { drop(FUTURE, self); }

EXPORT(HTTP "[method]incoming-response.status") u32 response_status(u32 self) { return ((struct response *)use(RESPONSE, self))->status; }
EXPORT(HTTP "[method]incoming-response.headers") u32 response_headers(u32 self) { return own(FIELDS, ((struct response *)use(RESPONSE, self))->headers); }
EXPORT(HTTP "[method]incoming-response.consume") void response_consume(u32 self, u32 to) {
  struct response *r = use(RESPONSE, self);
  AT8(to) = r->consumed;
  if (!r->consumed) AT32(to + 4) = own(IN_BODY, r);
  r->consumed = 1;
}
EXPORT(HTTP "[resource-drop]incoming-response") void response_drop(u32 self) { drop(RESPONSE, self); }
EXPORT(HTTP "[method]incoming-body.stream") void in_body_stream(u32 self, u32 to) {
  struct response *r = use(IN_BODY, self);
  AT8(to) = r->streamed;
  if (!r->streamed) AT32(to + 4) = new_input(0, r->body);
  r->streamed = 1;
}
EXPORT(HTTP "[static]incoming-body.finish") u32 in_body_finish(u32 self) { return own(TRAILERS, take(IN_BODY, self)); }
EXPORT(HTTP "[resource-drop]incoming-body") void in_body_drop(u32 self) { drop(IN_BODY, self); }
EXPORT(HTTP "[method]future-trailers.subscribe") u32 trailers_subscribe(u32 self) { return use(TRAILERS, self), new_pollable(0, 0); }
EXPORT(HTTP "[method]future-trailers.get") void trailers_get(u32 self, u32 to) { // there are none
  use(TRAILERS, self);
  AT8(to) = 1;
  AT8(to + 8) = AT8(to + 16) = AT8(to + 24) = 0;
}
EXPORT(HTTP "[resource-drop]future-trailers") void trailers_drop(u32 self) { drop(TRAILERS, self); }
EXPORT(HTTP "http-error-code") void http_error(u32 error, u32 to) { AT8(to) = use(ERROR, error) == 0; }
