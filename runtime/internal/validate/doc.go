// Package validate checks JSON documents against JSON Schema.
//
// Schemas are untrusted: a module describes its own input, and so does an
// MCP server. A validator follows a schema wherever it leads, so [Compile]
// bounds what it may lead to before anything follows it: its size, its depth,
// its size after every reference has been replaced, and references that leave
// the document or form a circle, which are refused.
//
// What is wrong with a document is told to a model, which is to mend it. So
// [Schema.Check] lists everything at once, each problem with the place where it
// is:
//
//	(document): missing property 'id'; /limit: got 11, want at most 10
package validate
