// The tools that spec/tck requires of an SDK.
import { Json, Request, context, failure, now, random, snooze, tool } from "../sdk";
export * from "../sdk/exports";

tool("echo", "Returns its input and its context.", (input: Json): Json => {
  const call = context();
  return Json.object().set("input", input).set("run_id", call.get("run_id")).set("call_id", call.get("call_id"))
    .set("attempt", call.get("attempt")).set("variables", call.get("variables"));
}).takesAny();

tool("fail", "Fails as it is told.", (input: Json): Json => {
  const kind = input.text("kind"), message = input.text("message");
  return kind == "snooze" ? snooze(1500, message) : failure(kind, message);
}).takesAny();

tool("effects", "Reads the clock and draws a random number.", (input: Json): Json => {
  const read = now() / 1000000;
  return Json.object().setInteger("now_ms", read).setText("random", random().toString());
}).takesAny();

tool("fetch", "Makes one request.", (input: Json): Json => {
  const request = new Request(input.has("method") ? input.text("method") : "GET", input.text("url"));
  if (input.has("body")) request.text(input.text("body"));
  if (input.has("effect")) request.effect(input.text("effect"));
  const response = request.send();
  if (response.failed) return Json.object().setText("failed", response.reason);
  return Json.object().setInteger("status", response.status).setText("body", response.text());
}).takesAny();
