import { Json, discard, tool } from "../sdk";
export * from "../sdk/exports";

function example_tool(input: Json): Json {
  const name = input.text("name");
  if (name == "") return discard("name is empty");
  return Json.object().setText("greeting", "Hello, " + name + ".");
}

tool("example_tool", "Greets somebody by name.", example_tool)
  .takes("name", "string", "Whom to greet")
  .gives("greeting", "string")
  .idempotent();
