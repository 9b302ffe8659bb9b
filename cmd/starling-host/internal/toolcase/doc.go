// Package toolcase reads, runs and writes the cases of a tool: inputs with the recorded answers of
// the world, and what the tool made of them.
//
// A case is a file NAME.txtar in the folder cases of a tool. People write and review cases, so they
// hold requests and responses as text. A case is not bound to a module: its effects answer any
// version of the tool that asks for them, see [Case.Run]. docs/write-a-tool.md describes the format.
package toolcase
