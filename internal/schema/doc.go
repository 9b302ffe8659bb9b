// Package schema derives JSON Schema from Go types, and decodes documents of
// these schemas.
//
// Tools are made from Go functions on both sides of the contract: in guests,
// and in the host itself. Both describe the same struct to a model in the same
// way: the SDK for Go, a module without dependencies, has a copy of this package,
// and a test compares the two. The schema describes the JSON that
// encoding/json reads into a type, or writes from it:
//
//	type lookup struct {
//		City  string `json:"city" jsonschema:"description=City name"`
//		Units string `json:"units,omitempty" jsonschema:"enum=metric,enum=imperial"`
//	}
//
// is as an input
//
//	{"type":"object","properties":{
//	   "city":{"type":"string","description":"City name"},
//	   "units":{"type":"string","enum":["metric","imperial"]}},
//	 "required":["city"],"additionalProperties":false}
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
// A comma that is not followed by a word and an equals sign belongs to the
// value. A member with a default is not required: if it is missing, it is
// filled in before the input is decoded.
//
// The bytes depend on the type alone, since they are hashed into logs.
package schema

//go:generate ./copy.sh
