// Package config reads the files that people write for this program.
//
// YAML is easy to write and easy to get wrong, so what is accepted is the part of
// it that means what it looks like: maps with text as keys, lists, and scalars
// with the values of JSON. Every JSON document is such a file. Anchors, aliases,
// tags, merge keys, several documents in one file, control characters and numbers
// that only YAML knows, such as 017 and 1_000, are refused. Nothing in a file can
// make it expand.
//
// [Parse] makes a tree of [Node]s, which know where they stand, and [Node.Decode]
// fills a Go value from it. A key that the value has no field for is an error. So
// is a null: leave the key out for the default. An [*Error] shows the place:
//
//	agent.yaml:3:1: there is no key "modle"
//	  3 | modle: gpt-5
//	    | ^
//	hint: did you mean "model"?
//
// A type takes part in two ways. What is a [Decoder] reads its node itself, and a
// [Checker] looks at a value once its fields are filled.
package config
