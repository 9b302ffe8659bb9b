import { encode } from "./host";
import { Json, Kind } from "./json";

/** A tool: a function with its description. */
export class Tool {
  description: Json = Json.object();
  input: Json = schema();
  output: Json = schema();

  constructor(public name: string, text: string, public execute: (input: Json) => Json) {
    this.description.setText("name", name).setText("description", text).set("input_schema", this.input);
  }

  /** Adds a member to the input. The type is one of JSON Schema, or a whole schema as JSON. */
  takes(name: string, type: string, description: string = "", required: bool = true): Tool {
    field(this.input, name, type, description, required);
    return this;
  }

  /** Takes an object with any members. */
  takesAny(): Tool {
    this.description.set("input_schema", Json.object().setText("type", "object"));
    return this;
  }

  /** Adds a member to the output. */
  gives(name: string, type: string, description: string = "", required: bool = true): Tool {
    field(this.output, name, type, description, required);
    this.description.set("output_schema", this.output);
    return this;
  }

  /** Tells the host that it may repeat a call. */
  idempotent(): Tool {
    this.description.setBool("idempotent", true);
    return this;
  }

  /** Adds a host that the tool wants to reach. */
  effect(host: string): Tool {
    const hosts = this.description.has("effects") ? this.description.get("effects") : Json.array();
    this.description.set("effects", hosts.push(Json.string(host)));
    return this;
  }

  /** Sets a limit that the tool wants to have, such as timeout_ms. */
  limit(name: string, value: i64): Tool {
    const limits = this.description.has("limits") ? this.description.get("limits") : Json.object();
    this.description.set("limits", limits.setInteger(name, value));
    return this;
  }
}

function schema(): Json {
  return Json.object().setText("type", "object").set("properties", Json.object()).set("required", Json.array()).setBool("additionalProperties", false);
}

function field(schema: Json, name: string, type: string, description: string, required: bool): void {
  let member = Json.object();
  if (type.startsWith("{")) {
    const parsed = Json.parse(type);
    assert(parsed, "the schema of " + name + " is not JSON");
    member = parsed!;
  } else {
    member.setText("type", type);
  }
  if (description != "") member.setText("description", description);
  schema.get("properties").set(name, member);
  if (required) schema.get("required").push(Json.string(name));
}

/** Returns the failure of a tool. The kinds have functions of their own. */
export function failure(kind: string, message: string, delay: u64 = 0): Json {
  const json = new Json(Kind.Failure);
  json.value = message;
  json.reason = kind;
  json.delay = delay;
  return json;
}

/** The tool failed. */
export function fail(message: string): Json { return failure("tool", message); }
/** Another attempt may succeed. */
export function transient(message: string): Json { return failure("transient", message); }
/** Final; the input is not at fault. */
export function cancel(message: string): Json { return failure("cancel", message); }
/** Final; this input can never succeed. */
export function discard(message: string): Json { return failure("discard", message); }
/** Retry after the delay in milliseconds, without using up an attempt. */
export function snooze(delay: u64, message: string): Json { return failure("snooze", message, delay); }

const tools: Tool[] = [];
let current: Json = Json.null();
let kept: ArrayBuffer = new ArrayBuffer(0); // the document that the host reads

/** Makes a function a tool of the module. */
export function tool(name: string, description: string, execute: (input: Json) => Json): Tool {
  const made = new Tool(name, description, execute);
  tools.push(made);
  return made;
}

/** Returns the context of the call: run_id, call_id, attempt and perhaps variables. */
export function context(): Json { return current; }

function document(json: Json): u64 {
  kept = encode(json.toString());
  return (<u64>changetype<usize>(kept)) << 32 | kept.byteLength;
}

export function describe(): u64 {
  const list = Json.array();
  for (let i = 0; i < tools.length; i++) list.push(tools[i].description);
  return document(Json.object().set("tools", list));
}

export function execute(at: usize, length: u32): u64 {
  const parsed = Json.parse(String.UTF8.decodeUnsafe(at, length));
  const call = parsed ? parsed : Json.null();
  current = call.get("context");
  let result = fail("there is no such tool");
  for (let i = 0; i < tools.length; i++) {
    if (tools[i].name == call.text("tool")) result = tools[i].execute(call.get("input"));
  }
  if (result.kind != Kind.Failure) return document(Json.object().set("output", result));
  const error = Json.object().setText("kind", result.reason).setText("message", result.value);
  if (result.delay) error.setInteger("retry_after_ms", result.delay);
  return document(Json.object().set("error", error));
}
