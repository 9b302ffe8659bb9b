package wasmtest

import (
	"fmt"

	"github.com/starling-host/starling/internal/wasm"
)

// Saying is a module with one tool that always gives the same answer.
func Saying(name, answer string) []byte {
	return Taking(name, answer, `{"type":"object","additionalProperties":false}`)
}

// Taking is [Saying] with the schema of the input.
func Taking(name, answer, schema string) []byte {
	const describeAt, answerAt, inputAt = 1 << 10, 8 << 10, 64 << 10
	about := fmt.Sprintf(`{"tools":[{"name":%q,"description":"It says %s.","input_schema":%s}]}`, name, answer, schema)
	says := fmt.Sprintf(`{"output":%q}`, answer)
	packed := func(at int, text string) *wasm.Asm {
		return new(wasm.Asm).I64(int64(at)<<32 | int64(len(text)))
	}
	return (&Module{
		Memory: Pages(32), Exports: []Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Data: []Data{{Offset: describeAt, Bytes: about}, {Offset: answerAt, Bytes: says}},
		Funcs: []Func{
			{Export: "starling_alloc", Type: Type("i:i"), Code: new(wasm.Asm).I32(inputAt)},
			{Export: "starling_describe", Type: Type(":I"), Code: packed(describeAt, about)},
			{Export: "starling_execute", Type: Type("ii:I"), Code: packed(answerAt, says)},
		},
	}).Bytes()
}
