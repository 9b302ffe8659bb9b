package rewrite

// CostTableVersion is the version of the cost table in spec/determinism.md. It
// changes when any module could get another count. It belongs into the key of
// every cache of rewritten modules and into the log.
const CostTableVersion = 1

// The import that a rewritten module adds to its own: a function () -> (),
// called when the counter is over the limit. It returns to let the guest go
// on, usually after raising the limit, or does not return.
const (
	RefillModule = "starling:fuel"
	RefillName   = "refill"
)

// The exports that a rewritten module adds to its own. The globals are
// mutable.
const (
	GlobalFuel  = reserved + "fuel"  // i64: what was charged; begins at 0, only grows
	GlobalLimit = reserved + "limit" // i64, unsigned: where refill is called; begins at 0
	GlobalDepth = reserved + "depth" // i32: free slots of the call stack; begins at Options.Depth; negative after an overflow
	ExportStart = reserved + "start" // () -> (): the start function, if there was one
)

// Result is a rewritten module.
type Result struct {
	Wasm      []byte
	Info      Info
	CostTable uint32 // CostTableVersion
}

// Rewrite checks b with [Check] and returns the metered module.
func Rewrite(b []byte, l Limits, o Options) (*Result, error) {
	g, err := pass(b, l, ImportType)
	if err != nil {
		return nil, err
	}
	g.m.DropCustom()
	return &Result{Wasm: g.m.Encode(), Info: g.info, CostTable: CostTableVersion}, nil
}
