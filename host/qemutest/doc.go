// Package qemutest runs a test of the calling package on processors that this
// machine does not have, in the user-mode emulator of QEMU.
//
// What a guest does must be the same everywhere, and an emulator is the nearest
// thing to everywhere that a test can have. The [Processors] are chosen for what
// they do not share with most of our machines: instructions, the order of the bytes
// of a word, the size of an int. A test builds its own package for one of them and has
// a single test of it write down there what it sees, which the caller compares
// with what it sees here. It is skipped where there is no emulator.
package qemutest
