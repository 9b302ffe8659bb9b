// The world of IronClaw's tools, near:agent: one function, execute, has its parameters as a
// text of JSON, and the name of a capability in its context. The functions are execute, schema
// and description; each further one names a tool and, instead of types, its capability and its
// credential: the beginning of addresses, and the header Authorization of requests to these.
enum { EXECUTE, SCHEMA, DESCRIPTION, TOOLS };

// agent_http makes an exchange. A failure is a text; since 0.4 it is a record with a kind.
static void agent_http(struct text method, struct text url, struct text headers, struct text body, u32 timeout, u32 to, u32 typed) {
  struct body m = {0};
  struct response r;
  struct text why = TEXT("the method or the address is not valid");
  u8 digits[12];
  write_line(&m, method, url);
  write_headers(&m, document(headers.p, headers.n));
  u32 i = tool_index();
  if (i != ~0u && i >= TOOLS) { // of a manifest, whose credential is for the addresses that begin so
    const u32 *credential = (const u32 *)function(i) + 4;
    if (credential[1] && url.n >= credential[1] && equal(url.p, descriptors + credential[0], credential[1]))
      write_header(&m, TEXT("Authorization"), (struct text){descriptors + credential[2], credential[3]});
  }
  if (timeout) write_header(&m, TEXT("Starling-Timeout"), (struct text){digits, write_number(digits, timeout) - digits});
  write_body(&m, body);
  i32 failed = is_made_of(TOKEN, method) && is_made_of(ADDRESS, url) ? exchange(&m, &r, &why) : -5;
  AT8(to) = failed != 0;
  if (failed && !typed) {
    give(to + 4, why.p, why.n);
  } else if (failed) { // kind, code, message, whether the request was sent
    static const u8 kinds[] = {6, 4, 6, 6, 2, 1};
    AT8(to + 4) = failed < -5 ? 6 : kinds[-failed];
    AT8(to + 8) = 0;
    give_option(to + 20, 1, why);
    AT8(to + 32) = failed == -2 || failed == -3;
  } else {
    struct text all = headers_text(r.headers);
    AT16(to + 4) = r.status;
    give(give(to + 8, all.p, all.n), r.body.p, r.body.n);
  }
}

static void agent_log(const u8 *p, u32 n) {
  write_log(2, p, n);
  write_log(2, "\n", 1);
}

// The host puts secrets in the place of placeholders, so a tool may count on any.
#define AGENT(minor, typed)                                                                                                           \
  EXPORT("near:agent/host@0." #minor "#log") void agent_log##minor(u32 level, const u8 *p, u32 n) { agent_log(p, n); }                \
  EXPORT("near:agent/host@0." #minor "#now-millis") u64 agent_now##minor(void) { return now(0) / 1000000; }                           \
  EXPORT("near:agent/host@0." #minor "#workspace-read") void agent_read##minor(const u8 *p, u32 n, u32 to) { AT8(to) = 0; }           \
  EXPORT("near:agent/host@0." #minor "#secret-exists") u32 agent_secret##minor(const u8 *p, u32 n) { return 1; }                      \
  EXPORT("near:agent/host@0." #minor "#tool-invoke") void agent_tool##minor(const u8 *a, u32 an, const u8 *p, u32 n, u32 to) {        \
    give_option(to, 1, TEXT("this host calls no other tool for a component"));                                                        \
  }                                                                                                                                   \
  EXPORT("near:agent/host@0." #minor "#http-request")                                                                                 \
  void agent_http##minor(const u8 *m, u32 mn, const u8 *u, u32 un, const u8 *h, u32 hn, u32 some, const u8 *b, u32 bn, u32 limited,   \
                         u32 timeout, u32 to) {                                                                                       \
    agent_http((struct text){m, mn}, (struct text){u, un}, (struct text){h, hn}, (struct text){b, some ? bn : 0},                     \
               limited ? timeout : 0, to, typed);                                                                                     \
  }
AGENT(3, 0)
AGENT(4, 1)

// text_result calls schema or description.
static struct text text_result(u32 i) {
  u64 result = 0;
  call(i, TEXT("{}").p, &result);
  u32 at = lift(function(i), &result);
  in_memory(AT32(at), AT32(at + 4), 1);
  struct text t = {document((void *)AT32(at), AT32(at + 4)), AT32(at + 4)};
  if (function(i)->flags & POST_RETURN) link_post(i, &result);
  return t;
}

// A description has 4,000 bytes at most, and whole characters.
static u8 *write_description(u8 *w, struct text t) {
  if (t.n > 4000)
    for (t.n = 4000; t.p[t.n] >> 6 == 2;) t.n--;
  return write_text(w, t.p, t.n);
}

// write_schema says that a schema is of an object, if it does not, as the contract wants.
static u8 *write_schema(u8 *w, struct text schema) {
  const u8 *p = space(schema.p), *end = schema.p + schema.n;
  if (*p == '{' && !member(p, TEXT("type"))) {
    w = WRITE(w, "{\"type\":\"object\"");
    if (*space(++p) != '}') w = WRITE(w, ",");
  }
  return write(w, p, end - p);
}

EXPORT("agent_describe") u64 agent_describe(void) {
  struct text schema = text_result(SCHEMA), description = text_result(DESCRIPTION);
  const struct function *f = function(EXECUTE);
  u8 *w = write_text(WRITE(begin(), "{\"tools\":[{\"name\":"), descriptors + f->name, f->name_n);
  w = write_description(WRITE(w, ",\"description\":"), description);
  w = write_schema(WRITE(w, ",\"input_schema\":"), schema);
  return packed(WRITE(w, "}]}"));
}

EXPORT("agent_execute") u64 agent_execute(u8 *p, u32 n) {
  const u8 *input = begin_request(p, n), *end;
  const struct function *f = function(EXECUTE);
  if (!input || !(end = skip(input))) return failure(TEXT("discard"), TEXT("there is no input"));
  u8 *w = WRITE(begin(), "{\"req\":{\"context\":");
  u32 i = tool_index();
  if (i != ~0u && i >= TOOLS) {
    w = write(WRITE(w, "\"{\\\"capability_id\\\":\\\""), descriptors + f[i].parameters, f[i].result);
    w = WRITE(w, "\\\"}\",\"unused\":");
  }
  w = write_text(WRITE(w, "null,\"params\":"), input, end - input);
  w = WRITE(w, "}}\0               "); // with slack behind it
  u64 result = 0, reply;
  if (!call(EXECUTE, out, &result)) return failure(TEXT("discard"), why);
  u32 at = lift(f, &result), record, good;
  const struct node *t = node(f->result);
  // A record of two options, output and error; since 0.4 a variant of success and failure.
  record = t->kind == RECORD;
  good = record ? AT8(at) : !discriminant(t, at);
  if (good || record) {
    u32 pair = at + (record ? t->rows[!good].offset + 4 : t->b);
    struct text text = {(const u8 *)AT32(pair), AT32(pair + 4)};
    in_memory(AT32(pair), text.n, 1);
    if (good) reply = packed(WRITE(write(WRITE(begin(), "{\"output\":"), text.p, text.n), "}"));
    else reply = failure(TEXT("tool"), text);
  } else {
    w = write_value(begin(), node(t->rows[1].type), at + t->b);
    reply = failure(TEXT("tool"), (struct text){out, w - out});
  }
  if (f->flags & POST_RETURN) link_post(EXECUTE, &result);
  return reply;
}
