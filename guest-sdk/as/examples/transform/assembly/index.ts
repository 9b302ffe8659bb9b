import { Json, tool } from "../sdk";
export * from "../sdk/exports";

function isLetter(c: i32): bool { return (c | 0x20) >= 0x61 && (c | 0x20) <= 0x7a; }
function isDigit(c: i32): bool { return c >= 0x30 && c <= 0x39; }

function transform(input: Json): Json {
  const text = input.text("text");
  const counts = Json.object();
  const upper = new Array<i32>(text.length);
  let words = 0, from = 0;
  for (let i = 0; i <= text.length; i++) {
    const c = i < text.length ? text.charCodeAt(i) : 0;
    if (i < text.length) upper[i] = c >= 0x61 && c <= 0x7a ? c - 0x20 : c;
    if (isLetter(c) || isDigit(c)) continue;
    if (i > from) {
      const word = text.substring(from, i).toLowerCase();
      counts.setInteger(word, counts.integer(word) + 1);
      words++;
    }
    from = i + 1;
  }
  return Json.object().setInteger("words", words).setText("upper", String.fromCharCodes(upper)).set("counts", counts);
}

tool("transform", "Counts the words of a text, and writes it in capital letters.", transform)
  .takes("text", "string")
  .gives("words", "integer")
  .gives("upper", "string")
  .gives("counts", '{"type":"object","additionalProperties":{"type":"integer"}}')
  .idempotent();
