// Package qemutest runs a test of the calling package on other processors, in the user-mode
// emulator of QEMU.
//
// A guest must behave the same everywhere, and an emulator is the closest that a test can
// get to everywhere. The [Processors] differ from most of our machines in instructions,
// byte order, or the size of an int. A test builds its own package for such a processor and
// runs one of its tests there; the caller compares the output with the one of this machine.
// It is skipped without an emulator.
package qemutest
