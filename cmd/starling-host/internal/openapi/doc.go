// Package openapi writes the folder of a tool in Python from an OpenAPI document: one operation is
// one tool. Routes, schemas and policy are computed here, so the tool does little at its start.
//
// The document is untrusted. Only references within it are followed, and schemas become
// JSON Schema as the host takes it: without references, bounded in depth and number.
package openapi
