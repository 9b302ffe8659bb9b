package abi

// Version names the contract. It is also the name of the import module.
const Version = "starling:v1"

// Command is what the log calls the other kind of module: a WASI command, which
// knows nothing of the contract.
const Command = "wasi:command"

// The three imports of module [Version].
const (
	ImportNow    = "now"    // () -> i64: Unix time in nanoseconds
	ImportRandom = "random" // () -> i64: 64 uniform random bits
	ImportHTTP   = "http"   // (req, req_len, buf, cap i32) -> i64: one HTTP exchange
)

// NestedTarget is the target of a request that calls another tool of the run instead of making an
// HTTP exchange: see section 5 of spec/abi.md.
const NestedTarget = "starling:call"

// WASIModule is the import module of WASI preview 1, which language runtimes
// link. The host serves it as pure functions of the call; see spec/abi.md.
const WASIModule = "wasi_snapshot_preview1"

// The exports of a guest. Initialize and Warmup are optional. A module that
// has Start and neither Describe nor Execute is a WASI command.
const (
	ExportMemory     = "memory"
	ExportAlloc      = "starling_alloc"    // (n i32) -> i32
	ExportDescribe   = "starling_describe" // () -> i64
	ExportExecute    = "starling_execute"  // (ptr, len i32) -> i64
	ExportInitialize = "_initialize"       // () -> ()
	ExportWarmup     = "starling_warmup"   // () -> ()
	ExportStart      = "_start"            // () -> ()
)

// EffectHeader is the header of an HTTP request with the guest's name for the effect in the log.
// The host removes it before it sends the request. Without it the name is the method, a space and
// the URL.
const EffectHeader = "Starling-Effect"

// TimeoutHeader is the header of an HTTP request with the maximum time in milliseconds to wait for
// the response. The host removes it too.
const TimeoutHeader = "Starling-Timeout"

// Pack joins the address and length of a document in guest memory into the one
// i64 that starling_describe and starling_execute return.
func Pack(ptr, length uint32) uint64 { return uint64(ptr)<<32 | uint64(length) }

// Unpack is the inverse of [Pack]. When the length is zero the address has no
// meaning and must be ignored: Zig hands out 0xaaaaaaaa for empty slices.
func Unpack(v uint64) (ptr, length uint32) { return uint32(v >> 32), uint32(v) }
