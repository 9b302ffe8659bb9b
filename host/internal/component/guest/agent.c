// The world of IronClaw's tools, near:agent: one function, execute, has the parameters as text
// and the name of a capability in its context. The functions are execute, schema and
// description; each further one names a tool and its capability.

enum { EXECUTE, SCHEMA, DESCRIPTION, TOOLS };

#define AGENT3 "near:agent/host@0.3#"
#define AGENT4 "near:agent/host@0.4#"
static void agent_log(const u8 *p, u32 n) {
  write_log(2, p, n);
  write_log(2, "\n", 1);
}
EXPORT(AGENT3 "log") void agent_log3(u32 level, const u8 *p, u32 n) { agent_log(p, n); }
EXPORT(AGENT4 "log") void agent_log4(u32 level, const u8 *p, u32 n) { agent_log(p, n); }
EXPORT(AGENT3 "now-millis") u64 agent_now3(void) { return now(0) / 1000000; }
EXPORT(AGENT4 "now-millis") u64 agent_now4(void) { return now(0) / 1000000; }
EXPORT(AGENT3 "workspace-read") void agent_read3(const u8 *p, u32 n, u32 to) { AT8(to) = 0; }
EXPORT(AGENT4 "workspace-read") void agent_read4(const u8 *p, u32 n, u32 to) { AT8(to) = 0; }
// The host's policy adds secrets to requests, so a tool may count on any.
EXPORT(AGENT3 "secret-exists") u32 agent_secret3(const u8 *p, u32 n) { return 1; }
EXPORT(AGENT4 "secret-exists") u32 agent_secret4(const u8 *p, u32 n) { return 1; }
static void agent_no_tool(u32 to) {
  AT8(to) = 1;
  give(to + 4, "this host calls no other tools for a component", 46);
}
EXPORT(AGENT3 "tool-invoke") void agent_tool3(const u8 *a, u32 an, const u8 *p, u32 n, u32 to) { agent_no_tool(to); }
EXPORT(AGENT4 "tool-invoke") void agent_tool4(const u8 *a, u32 an, const u8 *p, u32 n, u32 to) { agent_no_tool(to); }

// agent_http makes an exchange. Headers are an object in JSON text, which has no zero byte at
// its end. A failure is a text; since 0.4 it is a record with a kind.
static void agent_http(struct text method, struct text url, struct text headers, struct text body, u32 timeout, u32 to, u32 typed) {
  struct body m = {0};
  struct text key, value;
  add_body(&m, method.p, method.n);
  add_body(&m, " ", 1);
  add_body(&m, url.p, url.n);
  add_body(&m, " HTTP/1.1\r\n", 11);
  u8 *p = alloc(headers.n + 16);
  copy(p, headers.p, headers.n);
  p[headers.n] = 0;
  for (const u8 *next = p; next && (next = each(next, &key));) {
    value = text_of(next, &next);
    if (is_token(key) && is_value(value)) write_header(&m, key, value);
  }
  if (timeout) {
    u8 digits[12];
    write_header(&m, TEXT("Starling-Timeout"), (struct text){digits, write_number(digits, timeout) - digits});
  }
  write_body(&m, body);
  struct response r;
  struct text failure = TEXT("the method or the address is not valid");
  i32 failed = is_token(method) && is_visible(url) ? exchange(&m, &r, &failure) : -5;
  AT8(to) = failed != 0;
  if (failed && !typed) {
    give(to + 4, failure.p, failure.n);
  } else if (failed) { // kind, code, message, whether the request was sent
    static const u8 kinds[] = {6, 4, 6, 6, 2, 1};
    AT8(to + 4) = failed < -5 ? 6 : kinds[-failed];
    AT8(to + 8) = 0;
    give_option(to + 20, 1, failure);
    AT8(to + 32) = failed == -2 || failed == -3;
  } else {
    u8 *w = begin();
    for (u32 i = 0; i < r.headers->n; i++) {
      w = i ? WRITE(w, ",") : WRITE(w, "{");
      w = WRITE(write_text(w, r.headers->all[i].name.p, r.headers->all[i].name.n), ":");
      w = write_text(w, r.headers->all[i].value.p, r.headers->all[i].value.n);
    }
    w = r.headers->n ? WRITE(w, "}") : WRITE(w, "{}");
    AT16(to + 4) = r.status;
    give(to + 8, out, w - out);
    give(to + 16, r.body.p, r.body.n);
  }
}
#define AGENT_HTTP(typed) \
  agent_http((struct text){m, mn}, (struct text){u, un}, (struct text){h, hn}, (struct text){b, some ? bn : 0}, limited ? timeout : 0, to, typed)
EXPORT(AGENT3 "http-request") void agent_http3(const u8 *m, u32 mn, const u8 *u, u32 un, const u8 *h, u32 hn, u32 some, const u8 *b, u32 bn, u32 limited, u32 timeout, u32 to) { AGENT_HTTP(0); }
EXPORT(AGENT4 "http-request") void agent_http4(const u8 *m, u32 mn, const u8 *u, u32 un, const u8 *h, u32 hn, u32 some, const u8 *b, u32 bn, u32 limited, u32 timeout, u32 to) { AGENT_HTTP(1); }

// text_result calls schema or description.
static struct text text_result(u32 i) {
  const struct function *f = function(i);
  u64 result = 0;
  call(i, TEXT("{}").p, &result);
  u32 at = lift(f, &result);
  in_memory(AT32(at), AT32(at + 4), 1);
  struct text t = {alloc(AT32(at + 4) + 16), AT32(at + 4)};
  copy(t.p, AT32(at), t.n);
  if (f->flags & POST_RETURN) link_post(i, &result);
  ((u8 *)t.p)[t.n] = 0;
  return t;
}

EXPORT("agent_describe") u64 agent_describe(void) {
  struct text schema = text_result(SCHEMA), description = text_result(DESCRIPTION);
  const struct function *f = function(EXECUTE);
  const u8 *first = space(schema.p);
  u8 *w = WRITE(begin(), "{\"tools\":[{\"name\":");
  w = write_text(w, descriptors + f->name, f->name_n);
  while (description.n > 4000 || (description.n && description.p[description.n] >> 6 == 2)) description.n--; // whole characters
  w = WRITE(write_text(WRITE(w, ",\"description\":"), description.p, description.n), ",\"input_schema\":");
  if (*first == '{' && !member(first, TEXT("type"))) {
    w = WRITE(w, "{\"type\":\"object\"");
    schema.n -= first + 1 - schema.p;
    schema.p = first + 1;
    if (*space(schema.p) != '}') w = WRITE(w, ",");
  }
  return packed(WRITE(write(w, schema.p, schema.n), "}]}"));
}

EXPORT("agent_execute") u64 agent_execute(u8 *p, u32 n) {
  struct text capability = {0}, parameters = {0}, key, action;
  const u8 *input = begin_request(p, n), *end;
  const struct function *f = function(EXECUTE);
  if (!input || !(end = skip(input))) return failure(TEXT("discard"), TEXT("there is no input"));
  for (u32 i = TOOLS; i < ((u32 *)descriptors)[0]; i++)
    if (f[i].name_n == tool.n && equal(descriptors + f[i].name, tool.p, tool.n)) capability = (struct text){descriptors + f[i].parameters, f[i].result};
  u8 *w = begin();
  if (!capability.p && (end = member(input, TEXT("action"))) && *end == '"') {
    // The component alone has one tool; its member "action" is the last part of the capability.
    read_text(end, &action);
    w = WRITE(write(w, descriptors + f->name, f->name_n), ".");
    w = write(w, action.p, action.n);
    capability = (struct text){out, w - out};
    w = WRITE(begin(), "{");
    for (const u8 *value = input; (value = each(value, &key)); value = end) {
      end = skip(value);
      if (key.n == 6 && equal(key.p, "action", 6)) continue;
      if (w[-1] != '{') w = WRITE(w, ",");
      w = WRITE(write_text(w, key.p, key.n), ":");
      w = write(w, value, end - value);
    }
    w = WRITE(w, "}");
    parameters = (struct text){out, w - out};
  } else {
    parameters = (struct text){input, skip(input) - input};
  }
  w = WRITE(begin(), "{\"req\":{\"context\":");
  if (capability.p) {
    u8 *document = WRITE(begin(), "{\"capability_id\":");
    document = WRITE(write_text(document, capability.p, capability.n), "}");
    struct text context = {out, document - out};
    w = WRITE(begin(), "{\"req\":{\"context\":");
    w = write_text(w, context.p, context.n);
  } else {
    w = WRITE(w, "null");
  }
  w = WRITE(write_text(WRITE(w, ",\"params\":"), parameters.p, parameters.n), "}}");
  copy(room(w, 16), "", 1);
  u64 result = 0;
  if (!call(EXECUTE, out, &result)) return misfits();
  u32 at = lift(f, &result);
  const struct node *t = node(f->result);
  u64 document;
  // A record of two options, output and error; since 0.4 a variant of success and failure.
  if (t->kind == RECORD ? AT8(at + t->rows[0].offset) : discriminant(t, at) == 0) {
    u32 text = at + (t->kind == RECORD ? t->rows[0].offset + 4 : t->b);
    in_memory(AT32(text), AT32(text + 4), 1);
    w = write(WRITE(begin(), "{\"output\":"), (void *)AT32(text), AT32(text + 4));
    document = packed(WRITE(w, "}"));
  } else {
    const struct node *error = node(t->rows[1].type);
    w = write_value(begin(), error, at + (t->kind == RECORD ? t->rows[1].offset : t->b));
    document = failure(TEXT("tool"), (struct text){out, w - out});
  }
  if (f->flags & POST_RETURN) link_post(EXECUTE, &result);
  return document;
}
