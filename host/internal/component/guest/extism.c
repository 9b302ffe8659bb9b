// The host functions of Extism's plug-ins. A block of its memory is one of the guest side, with
// its length before it. Variables of the call are the configuration; nothing outlives the call.

#define EXTISM "extism:host/env#"

static struct text plugin_input, plugin_output, plugin_error, plugin_headers;
static struct body plugin_variables; // pairs of texts: the name, the value
static u32 plugin_status;

static u64 block(const void *p, u32 n) {
  u64 *b = alloc(n + 8);
  *b = n;
  return (u32)copy(b + 1, p, n);
}
static u32 address(u64 at) {
  if (at >> 32) BROKEN("an address is outside of memory");
  return at;
}
static struct text text_at(u64 at) {
  struct text t = {(const u8 *)address(at), at ? AT32((u32)at - 8) : 0};
  in_memory(at, t.n, 1);
  return t;
}

EXPORT(EXTISM "alloc") u64 extism_alloc(u64 n) {
  if (n >> 30) __builtin_trap();
  u64 *b = alloc_zero(n + 16);
  *b = n;
  return n ? (u32)(b + 1) : 0;
}
EXPORT(EXTISM "free") void extism_free(u64 at) {}
EXPORT(EXTISM "length") u64 extism_length(u64 at) { return text_at(at).n; }
EXPORT(EXTISM "length_unsafe") u64 extism_length_unsafe(u64 at) { return text_at(at).n; }
EXPORT(EXTISM "load_u8") u32 extism_load_u8(u64 at) { return AT8(address(at)); }
EXPORT(EXTISM "load_u64") u64 extism_load_u64(u64 at) { return AT64(address(at)); }
EXPORT(EXTISM "store_u8") void extism_store_u8(u64 at, u32 v) { AT8(address(at)) = v; }
EXPORT(EXTISM "store_u64") void extism_store_u64(u64 at, u64 v) { AT64(address(at)) = v; }
EXPORT(EXTISM "input_length") u64 extism_input_length(void) { return plugin_input.n; }
EXPORT(EXTISM "input_offset") u64 extism_input_offset(void) { return (u32)plugin_input.p; }
EXPORT(EXTISM "input_load_u8") u32 extism_input_u8(u64 i) { return i < plugin_input.n ? plugin_input.p[i] : 0; }
EXPORT(EXTISM "input_load_u64") u64 extism_input_u64(u64 i) { return i + 8 <= plugin_input.n ? AT64(plugin_input.p + i) : 0; }
EXPORT(EXTISM "output_set") void extism_output_set(u64 at, u64 n) {
  in_memory(address(at), address(n), 1);
  plugin_output = (struct text){(const u8 *)(u32)at, n};
}
EXPORT(EXTISM "error_set") void extism_error_set(u64 at) { plugin_error = text_at(at); }
EXPORT(EXTISM "config_get") u64 extism_config_get(u64 at) {
  const u8 *value = member(variables, text_at(at));
  if (!value) return 0;
  struct text t = text_of(value, &value);
  return block(t.p, t.n);
}

// variable_at returns the place of a variable's value, or 0.
static struct text *variable_at(struct text name) {
  for (struct text *t = (void *)plugin_variables.p, *end = t + plugin_variables.n / sizeof *t; t < end; t += 2)
    if (t->n == name.n && equal(t->p, name.p, name.n)) return t + 1;
  return 0;
}
EXPORT(EXTISM "var_get") u64 extism_var_get(u64 name) {
  struct text *value = variable_at(text_at(name));
  return value && value->p ? block(value->p, value->n) : 0;
}
EXPORT(EXTISM "var_set") void extism_var_set(u64 name, u64 at) {
  struct text n = text_at(name), v = text_at(at), pair[] = {keep(n.p, n.n), keep(v.p, v.n)}, *old = variable_at(n);
  if (!at) pair[1].p = 0; // removed
  if (old) *old = pair[1];
  else add_body(&plugin_variables, pair, sizeof pair);
}

static void extism_log(u64 at) {
  write_log(2, text_at(at).p, text_at(at).n);
  write_log(2, "\n", 1);
}
EXPORT(EXTISM "log_trace") void extism_trace(u64 at) { extism_log(at); }
EXPORT(EXTISM "log_debug") void extism_debug(u64 at) { extism_log(at); }
EXPORT(EXTISM "log_info") void extism_info(u64 at) { extism_log(at); }
EXPORT(EXTISM "log_warn") void extism_warn(u64 at) { extism_log(at); }
EXPORT(EXTISM "log_error") void extism_error(u64 at) { extism_log(at); }
EXPORT(EXTISM "get_log_level") u32 extism_log_level(void) { return 2; } // info

EXPORT(EXTISM "http_request") u64 extism_http_request(u64 at, u64 body) {
  struct text t = text_at(at), body_text = text_at(body), method = TEXT("GET"), url = {0}, why;
  const u8 *d = document(t.p, t.n), *p;
  struct body m = {0};
  struct response r;
  if ((p = member(d, TEXT("method"))) && *p == '"') read_text(p, &method);
  if ((p = member(d, TEXT("url"))) && *p == '"') read_text(p, &url);
  write_line(&m, method, url);
  write_headers(&m, member(d, TEXT("headers")));
  write_body(&m, body_text);
  if (!is_made_of(TOKEN, method) || !is_made_of(ADDRESS, url) || exchange(&m, &r, &why)) BROKEN("the HTTP request failed");
  plugin_status = r.status;
  plugin_headers = headers_text(r.headers);
  return block(r.body.p, r.body.n);
}
EXPORT(EXTISM "http_status_code") u32 extism_http_status(void) { return plugin_status; }
EXPORT(EXTISM "http_headers") u64 extism_http_headers(void) { return block(plugin_headers.p, plugin_headers.n); }

// A plug-in's input is the text of the member "input" if that is all there is, and the text of
// the whole object otherwise. Its output is a text.
EXPORT("extism_execute") u64 extism_execute(u8 *p, u32 n) {
  const u8 *input = begin_request(p, n), *end, *only;
  struct text key;
  u32 i = tool_index();
  if (!input || i == ~0u || !(end = skip(input))) return failure(TEXT("discard"), TEXT("there is no input or no such tool"));
  plugin_input = (struct text){input, end - input};
  if ((only = each(input, &key)) && *only == '"' && key.n == 5 && equal(key.p, "input", 5) && *space(skip(only)) == '}') read_text(only, &plugin_input);
  u64 copied = block(plugin_input.p, plugin_input.n), result = 0;
  plugin_input.p = (const u8 *)(u32)copied;
  request = end;
  read_request(1);
  link_call(i, &copied, &result);
  if ((u32)result || plugin_error.n) return failure(TEXT("tool"), plugin_error.n ? plugin_error : TEXT("the plug-in failed"));
  u8 *w = write_text(WRITE(begin(), "{\"output\":"), plugin_output.p, plugin_output.n);
  return packed(WRITE(w, "}"));
}

// Plug-ins for hyper-mcp list their tools and take calls as in MCP: function 0 is describe, or
// list_tools of its second version, and 1 is call or call_tool.
static u32 is_second(void) { return function(0)->name_n == 10; }

static const u8 *plugin_call(u32 i, u8 *w, u64 *result) {
  plugin_input = (struct text){0, w - out};
  plugin_input.p = (const u8 *)(u32)block(out, plugin_input.n);
  link_call(i, result, result);
  return document(plugin_output.p, plugin_output.n);
}

// item goes through an array: p is at its bracket, or behind a value.
static const u8 *item(const u8 *p) {
  p = space(p);
  if (*p != '[' && *p != ',') return 0;
  p = space(p + 1);
  return *p == ']' ? 0 : p;
}

EXPORT("mcp_describe") u64 mcp_describe(void) {
  u64 result = 0;
  struct text t;
  const u8 *p = plugin_call(0, is_second() ? WRITE(begin(), "{\"context\":{\"_meta\":{},\"id\":1}}") : begin(), &result), *field;
  if ((u32)result || !(p = member(space(p), TEXT("tools")))) BROKEN("the plug-in does not list its tools");
  u8 *w = WRITE(begin(), "{\"tools\":[");
  for (; p && (p = item(p)); p = skip(p)) {
    if (w[-1] != '[') w = WRITE(w, ",");
    w = WRITE(w, "{\"name\":");
    w = (field = member(p, TEXT("name"))) && read_text(field, &t) ? write_text(w, t.p, t.n) : WRITE(w, "\"\"");
    w = WRITE(w, ",\"description\":");
    w = (field = member(p, TEXT("description"))) && read_text(field, &t) ? write_description(w, t) : WRITE(w, "\"\"");
    w = WRITE(w, ",\"input_schema\":");
    field = member(p, TEXT("inputSchema"));
    w = field ? write_schema(w, (struct text){field, skip(field) - field}) : WRITE(w, "{}");
    w = WRITE(w, "}");
  }
  return packed(WRITE(w, "]}"));
}

EXPORT("mcp_execute") u64 mcp_execute(u8 *p, u32 n) {
  const u8 *input = begin_request(p, n), *end, *field, *text;
  u64 result = 0;
  struct text t;
  if (!input || !(end = skip(input))) return failure(TEXT("discard"), TEXT("there is no input"));
  request = end;
  read_request(1);
  u8 *w = is_second() ? WRITE(begin(), "{\"context\":{\"_meta\":{},\"id\":1},\"request\":{\"name\":") : WRITE(begin(), "{\"method\":\"tools/call\",\"params\":{\"name\":");
  w = WRITE(write_text(w, tool.p, tool.n), ",\"arguments\":");
  const u8 *d = plugin_call(1, WRITE(write(w, input, end - input), "}}"), &result);
  if ((u32)result || plugin_error.n) return failure(TEXT("tool"), plugin_error.n ? plugin_error : TEXT("the plug-in failed"));
  d = space(d);
  u32 failed = (field = member(d, TEXT("isError"))) && *field == 't', parts = 0;
  w = failed ? begin() : WRITE(begin(), "{\"output\":[");
  u32 start = w - out;
  for (p = (u8 *)member(d, TEXT("content")); p && (p = (u8 *)item(p)); p = (u8 *)skip(p), parts++) {
    if (parts) w = failed ? WRITE(w, "\n") : WRITE(w, ",");
    text = member(p, TEXT("text"));
    if (text && read_text(text, &t)) w = failed ? write(w, t.p, t.n) : write_text(w, t.p, t.n);
    else w = write(w, p, skip(p) - p);
  }
  if (failed) return failure(TEXT("tool"), (struct text){out, w - out});
  if (parts != 1) return packed(WRITE(w, "]}"));
  out[start - 1] = ' ';
  return packed(WRITE(w, "}"));
}
