// Package jsonscan splits and checks JSON text without building values.
//
// The envelope around a tool's input has three members whose values are passed
// on as the bytes they are, and a tool's output only has to be well formed. A
// scanner of some kilobytes does both; encoding/json would add half a megabyte
// and its reflection to every module.
//
// The scanner is strict: it accepts what RFC 8259 calls a JSON text, in valid
// UTF-8, with paired surrogates only, nested at most [MaxDepth] deep. Work and
// stack are bounded by the length of the document and that depth. One worked
// example, the object {"tool":"dice","input":{"rolls":2}}, is handed out by
// [Object] as two members:
//
//	tool    "dice"         (6 bytes, quotes included; String gives dice)
//	input   {"rolls":2}    (11 bytes, already known to be well formed)
//
// Duplicate names are the caller's to refuse, who knows which ones matter.
package jsonscan
