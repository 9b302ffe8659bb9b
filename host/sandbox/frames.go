package sandbox

import _ "unsafe" // for go:linkname

// interpreterFrames is how many calls wazero's interpreter nests before it gives
// up. Its 2000 would be fewer than Limits.Depth allows, so that a call could have
// an outcome on the compiler alone; but each of its frames is also one of Go's
// stack, which grows to a gigabyte. wazero has no option for it: its comment says
// to set it when the program is linked, which only works for strings. Should the
// name ever change, TestTheDeepestCallIsTheSameOnBothEngines fails.
//
//go:linkname interpreterFrames github.com/tetratelabs/wazero/internal/engine/interpreter.callStackCeiling
var interpreterFrames int

// minFrameSlots is what the smallest frame takes of Limits.Depth: spec/determinism.md,
// section 4.
const minFrameSlots = 16

// A leaf takes nothing, and the host's own functions have frames too.
func init() { interpreterFrames = maxDepth/minFrameSlots + 16 }
