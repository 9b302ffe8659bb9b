import { tool } from "starling";

export default tool({
  name: "transform",
  description: "Counts the words of a text, and writes it in capitals.",
  inputSchema: {
    type: "object",
    properties: { text: { type: "string", description: "Any text" } },
    required: ["text"],
  },
  execute({ text }) {
    const words = text.match(/[A-Za-z0-9]+/g) ?? [];
    const counts = Object.create(null);
    for (const word of words.map((word) => word.toLowerCase()).sort()) counts[word] = (counts[word] ?? 0) + 1;
    return { words: words.length, upper: text.replace(/[a-z]+/g, (letters) => letters.toUpperCase()), counts };
  },
});
