export default {
  name: "greet",
  description: "Greets somebody, with the time of day and a lucky number.",
  inputSchema: {
    type: "object",
    properties: { name: { type: "string", description: "Whom to greet" } },
    required: ["name"],
  },
  execute({ name }) {
    const lucky = 1 + Math.floor(Math.random() * 100);
    return { greeting: `Hello, ${name}. It is ${new Date().toISOString()}.`, lucky };
  },
};
