import { discard, tool } from "starling";

export default tool({
  name: "example_tool",
  description: "Greets somebody by name.",
  inputSchema: {
    type: "object",
    properties: {
      name: { type: "string", description: "Whom to greet" },
      tone: { enum: ["plain", "loud"], description: "How to greet" },
    },
    required: ["name"],
  },
  idempotent: true,

  execute({ name, tone }) {
    if (name.trim() === "") throw discard("name is empty: say whom to greet");
    const greeting = `Hello, ${name}.`;
    return { greeting: tone === "loud" ? greeting.toUpperCase() : greeting };
  },
});
