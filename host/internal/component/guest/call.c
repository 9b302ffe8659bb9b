// Calls: of a tool by the host, and of one part of the component by another.

static const u8 *variables; // of the call's context, or 0

// A document is returned as its address and its length.
static u64 packed(u8 *w) { return (u64)(u32)out << 32 | (u32)(w - out); }

static u64 failure(struct text kind, struct text message) {
  u8 *w = WRITE(begin(), "{\"error\":{\"kind\":\"");
  w = WRITE(write(w, kind.p, kind.n), "\",\"message\":");
  w = write_text(w, message.p, message.n);
  return packed(WRITE(w, "}}"));
}

// finish returns the document of a result.
static u64 finish(const struct node *t, u32 at) {
  if (t && t->kind == RESULT) {
    const struct row *r = &t->rows[discriminant(t, at)];
    if (r != t->rows) {
      if (!r->type) return failure(TEXT("tool"), TEXT("the tool failed"));
      const struct node *error = node(r->type);
      u32 p = at + t->b;
      if (error->kind == STRING) {
        in_memory(AT32(p), AT32(p + 4), 1);
        return failure(TEXT("tool"), (struct text){(const u8 *)AT32(p), AT32(p + 4)});
      }
      u8 *w = write_value(begin(), error, p);
      return failure(TEXT("tool"), (struct text){out, w - out});
    }
    at += t->b;
    t = r->type ? node(r->type) : 0;
  }
  u8 *w = WRITE(begin(), "{\"output\":");
  w = t ? write_value(w, t, at) : WRITE(w, "null");
  return packed(WRITE(w, "}"));
}

// lift returns where the result of a call is in memory.
static u32 lift(const struct function *f, u64 *slots) {
  if (!f->result) return 0;
  const struct node *t = node(f->result);
  if (f->flags & RESULT_AT_ADDRESS) {
    in_memory(slots[0], t->size, t->align);
    return slots[0];
  }
  u32 at = (u32)alloc(t->size);
  flatten(t, at, slots, 1);
  return at;
}

// The task of an asynchronous function that is being called: its result is read when it
// returns it, since its memory is good only then.
static const struct function *task;
static u64 task_document;

EXPORT("task_return") void task_return(u64 *slots) {
  if (!task || task_document) BROKEN("a task returns twice");
  task_document = finish(task->result ? node(task->result) : 0, lift(task, slots));
}

EXPORT("task_step") u32 task_step(u32 code) {
  if ((code & 15) > 1) BROKEN("a task waits for something that never happens");
  return code & 15;
}

// What the host gives to execute is {"context": ..., "input": ..., "tool": ...}. The name of the
// tool is known first, as it is likely at the end, so that the input need not be skipped to
// find it.
static const u8 *request; // where it is not read yet
static struct text tool;

// read_request reads members up to the input, and returns that; or all of them.
static const u8 *read_request(u32 all) {
  struct text key;
  const u8 *input = 0;
  while (request && (request = each(request, &key))) {
    if (key.n == 5 && equal(key.p, "input", 5)) {
      input = request;
      if (tool.p && !all) break;
    } else if (key.n == 7 && equal(key.p, "context", 7)) {
      variables = member(request, TEXT("variables"));
    } else if (key.n == 4 && equal(key.p, "tool", 4)) {
      read_text(request, &tool);
    }
    request = skip(request);
  }
  return input && *input == '{' ? input : 0;
}

static const u8 *begin_request(u8 *p, u32 n) {
  const u8 *end = p + n - 2, *start = end;
  p[n] = 0;
  request = space(p);
  if (*request != '{') request = 0;
  if (n > 12 && end[0] == '"' && end[1] == '}') {
    do start--; while (start > p + 8 && *start != '"');
    if (equal(start - 7, "\"tool\":", 7) && (start[-8] == ',' || start[-8] == '{')) tool = (struct text){start + 1, end - start - 1};
  }
  return read_request(0);
}

// call gives a function its parameters, which are in a JSON object, and calls it. It returns 0
// if the object does not fit.
static u32 call(u32 i, const u8 *input, u64 *result) {
  const struct function *f = function(i);
  const struct node *parameters = node(f->parameters);
  u32 by_address = f->flags & PARAMETERS_AT_ADDRESS;
  u64 slots[17];
  callee = i;
  u32 image = by_address ? value_memory(1, parameters->size, parameters->align) : (u32)alloc(parameters->size);
  if (!(request = read_record(parameters, image, input))) return 0;
  read_request(1);
  if (by_address) slots[0] = image;
  else flatten(parameters, image, slots, 0);
  task = f->flags & ASYNC ? f : 0;
  link_call(i, slots, result);
  return 1;
}

EXPORT("alloc") void *alloc_input(u32 n) { return alloc(n + 16); }

// tool_index returns the number of the function that the tool is, or ~0.
static u32 tool_index(void) {
  const struct function *f = function(0);
  for (u32 i = 0; i < ((u32 *)descriptors)[0]; i++)
    if (f[i].name && f[i].name_n == tool.n && equal(descriptors + f[i].name, tool.p, tool.n)) return i;
  return ~0u;
}

EXPORT("execute") u64 execute(u8 *p, u32 n) {
  const u8 *input = begin_request(p, n);
  u32 i = tool_index();
  if (!input || i == ~0u) return failure(TEXT("discard"), input ? TEXT("there is no such tool") : TEXT("there is no input"));
  const struct function *f = function(i);
  u64 result = 0;
  if (!call(i, input, &result)) return failure(TEXT("discard"), why);
  if (f->flags & ASYNC) {
    if (!task_document) BROKEN("a task ends without a result");
    return task_document;
  }
  u64 document = finish(f->result ? node(f->result) : 0, lift(f, &result));
  if (f->flags & POST_RETURN) link_post(i, &result);
  return document;
}

// pass calls one part of the component for another.
EXPORT("pass") void pass(u32 i, u64 *arguments, u64 *results) {
  const struct function *f = function(i);
  const struct node *parameters = node(f->parameters), *result = f->result ? node(f->result) : 0;
  struct pass call = {f->caller, f->callee, 0, 0, 0, 0};
  u64 slots[17], values[17], returned = 0; // at most 16, of 8 bytes
  static u32 depth;
  if (++depth > 60) BROKEN("parts call each other too deeply"); // for the stack
  u32 image = (u32)values;
  flatten(parameters, image, arguments, 1);
  pass_value(parameters, image, &call);
  flatten(parameters, image, slots, 0);
  link_call(i, slots, &returned);
  depth--;
  if (call.borrowed) BROKEN("a borrowed handle is not dropped");
  while (call.n) table_of(f->caller)->handles[call.lent[--call.n]].lends--;
  if (result) {
    call.from = f->callee;
    call.to = f->caller;
    flatten(result, image, &returned, 1);
    pass_value(result, image, &call);
    flatten(result, image, results, 0);
  }
  if (f->flags & POST_RETURN) link_post(i, &returned);
}

EXPORT("exit_failed") void exit_failed(u32 failed) { if (failed) host_exit(1); }
