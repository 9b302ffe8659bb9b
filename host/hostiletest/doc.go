// Package hostiletest builds the modules that the loader and the sandbox are
// attacked with in tests. It knows no engine and runs nothing.
//
// [Loads] attack whoever reads, checks, compiles or instantiates a module:
// counts without content, indices that point nowhere, shapes whose compilation
// grows faster than they do. [Runs] are tools that pass the gate and attack
// while they run: they spin, recurse, grow, flood, lie about addresses and end in
// every way that there is.
//
// Each family has a sentence that says what it attacks. A new defect in an
// engine, or a new idea, becomes a family here, and all tests that go through
// the families have it.
package hostiletest
