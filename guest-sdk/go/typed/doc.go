// Package typed makes a tool from a Go function.
//
// The input is a struct, from whose type the JSON Schema follows that the model
// reads and the host enforces; the output is any value that encoding/json can
// write:
//
//	type rollIn struct {
//		Sides int    `json:"sides" jsonschema:"description=Sides of the die, at least 2"`
//		Style string `json:"style,omitempty" jsonschema:"enum=plain,enum=fancy"`
//	}
//	type rollOut struct {
//		Face int `json:"face"`
//	}
//
//	func init() {
//		starling.Register(typed.Tool("roll", "Rolls a die.", roll))
//	}
//
//	func roll(_ *starling.Call, in rollIn) (rollOut, error) { ... }
//
// gives the input schema
//
//	{"type":"object","properties":{
//	   "sides":{"type":"integer","description":"Sides of the die, at least 2"},
//	   "style":{"type":"string","enum":["plain","fancy"]}},
//	 "required":["sides"],"additionalProperties":false}
//
// # Input types
//
// Fields have the names that encoding/json gives them. A field is required
// unless its tag says omitempty or omitzero. Strings, booleans, numbers, slices,
// arrays, pointers, structs in structs and embedded structs are described as
// what they are; a slice of bytes is a base64 string, a time.Time an RFC 3339
// string, a type with UnmarshalText a string, and a json.RawMessage any value.
//
// What a model cannot be told, or what encoding/json would decode in a way that
// surprises, is refused when the module is loaded: [Tool] panics for an input
// that is not a struct, and for maps, interfaces, recursive types, types with
// their own UnmarshalJSON, the tag option string, and two fields of one name,
// where names that differ only in case count as one.
//
// # Tags
//
// The tag jsonschema holds description=TEXT and any number of enum=VALUE,
// separated by commas. A comma that is not followed by a word and an equals
// sign belongs to the text. An enum goes with strings and numbers.
//
// # Output types
//
// The output schema follows from the type as well, and there maps, interfaces
// and recursion are welcome. A nil result is null.
package typed
