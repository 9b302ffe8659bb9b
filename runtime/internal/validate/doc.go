// Package validate checks JSON documents against JSON Schema.
//
// Schemas are untrusted: a module describes its own input, and so does an MCP
// server. A validator follows a schema wherever it leads, so [Compile] bounds
// that first: its size, its depth, its size after every reference has been
// replaced; and it refuses references that leave the document or form a circle.
//
// A model receives the problems of a document, and has to fix them. So
// [Schema.Check] lists all problems at once, each with its place:
//
//	(document): missing property 'id'; /limit: got 11, want at most 10
package validate
