// Package config reads the files that people write for this program.
//
// YAML is easy to write and easy to get wrong, so what is accepted is the part of
// it that means what it looks like: maps with text as keys, lists, and scalars
// with the values of JSON. Every JSON document is such a file. Anchors, aliases,
// tags, merge keys, several documents in one file, control characters and numbers
// that only YAML knows, such as 017 and 1_000, are refused. Nothing in a file can
// make it expand.
//
// A kind of file is described once, by a JSON Schema in spec/, which editors read as
// well. [Schema.Load] checks a file against it and fills a Go value, and the caller
// checks what a schema cannot say, with the [Node]s of the document, which know where
// they stand. A null is refused: omit the key for the default. An [*Error] shows
// the place:
//
//	agent.yaml:3:1: unknown key "modle"
//	  3 | modle: gpt-5
//	    | ^
//	hint: did you mean "model"?
package config
