// Package treetest is for tests of what lies in the tree beside its Go packages: the pages, the
// SDK for JavaScript, the specification. Paths are relative to the root of the module, in which
// such a test runs.
package treetest
