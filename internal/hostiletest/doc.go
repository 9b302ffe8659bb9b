// Package hostiletest builds modules that attack the loader and the sandbox in tests. It
// does not use an engine and runs nothing.
//
// [Loads] attack the reading, checking, compilation and instantiation of a module: counts
// without content, indices that point nowhere, shapes whose compilation grows faster than
// they do. [Runs] are tools that pass the gate and attack while they run: they spin,
// recurse, grow, flood, lie about addresses and end in every possible way.
//
// Each family has a sentence that describes its attack. A new defect in an engine, or a new
// idea, becomes a family here, and all tests over the families cover it.
package hostiletest
