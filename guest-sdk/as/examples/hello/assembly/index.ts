import { Json, tool } from "../sdk";
export * from "../sdk/exports";

tool("hello", "Greets somebody by name.", (input: Json): Json => {
  return Json.object().setText("greeting", "Hello, " + input.text("name") + ".");
}).takes("name", "string", "Whom to greet").gives("greeting", "string").idempotent();
