// Package config reads the files that people write for this program.
//
// YAML is easy to write and easy to get wrong, so this package accepts only its unambiguous
// part: maps with text as keys, lists, and scalars with the values of JSON. Every JSON
// document is such a file. It refuses anchors, aliases, tags, merge keys, several documents
// in one file, control characters and numbers that are not JSON, such as 017 and 1_000.
// Nothing in a file can make it expand.
//
// Each kind of file has a JSON Schema in spec/, which editors read as well. [Schema.Load]
// checks a file against it and fills a Go value. The caller checks the rest on the [Node]s
// of the document, which know their place. A null is refused: omit the key for the default.
// An [*Error] shows the place:
//
//	agent.yaml:3:1: unknown key "modle"
//	  3 | modle: gpt-5
//	    | ^
//	hint: did you mean "model"?
package config
