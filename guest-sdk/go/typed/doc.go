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
// Exported fields have encoding/json's names: from the tag json or, without a tag, from
// the field. The tag json:"-" leaves a field out. A field is required unless its tag
// says omitempty or omitzero. Strings, booleans, numbers, slices, arrays, pointers,
// structs in structs and embedded structs have their natural schemas; a slice of bytes
// is a base64 string, a time.Time an RFC 3339 string, a type with UnmarshalText a
// string, and a json.RawMessage any value.
//
// An integer written as 1.0 or 1e0 is an integer for JSON Schema, and decodes into one.
//
// Types that a schema cannot describe, or that encoding/json would decode in a
// surprising way, are refused when the module is loaded: [Tool] panics for an input that
// is not a struct, and for maps, interfaces, recursive types, types with their own
// UnmarshalJSON, the tag option string, and two fields of one name, where names that
// differ only in case count as one.
//
// # Tags
//
// The tag jsonschema holds settings, KEY=VALUE, separated by commas:
//
//	description=TEXT               any type; the tag description does as well
//	enum=VALUE, again and again    strings and numbers
//	minLength=N, maxLength=N       strings, counted in characters
//	pattern=REGEXP                 strings; RE2, found anywhere in the string
//	minimum=N, maximum=N           numbers, both inclusive
//	minItems=N, maxItems=N         slices
//	default=VALUE                  any type; other than for a string in JSON
//	required=true, required=false  in spite of omitempty, or of its absence
//
// A comma that is not followed by a word and an equals sign belongs to the value. A
// member with a default is not required: if it is missing, it is filled in before the
// input is decoded.
//
// The host enforces all of it before the tool is called.
//
// # Output types
//
// The output schema follows from the type as well, and there maps, interfaces
// and recursion are welcome. A nil result is null.
package typed
