import { tool } from "starling";

export default tool({
  name: "hello",
  description: "Greets somebody.",
  inputSchema: {
    type: "object",
    properties: { name: { type: "string", description: "Whom to greet" } },
    required: ["name"],
  },
  execute: ({ name }) => ({ greeting: `Hello, ${name}.` }),
});
