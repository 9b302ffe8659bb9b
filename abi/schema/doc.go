// Package schema derives JSON Schema from Go types, and decodes what the schema
// describes.
//
// Tools are made from Go functions on both sides of the contract: in guests,
// and in the host itself. Both tell a model the same about the same struct, so
// both ask here. The schema says what encoding/json reads into a type, or
// writes of it:
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
// The bytes depend on the type alone, since they are hashed into logs.
package schema
