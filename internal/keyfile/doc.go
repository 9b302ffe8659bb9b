// Package keyfile reads and writes files that only their owner may read, such as key files. It
// also opens regular files alone, replaces files in one step, and locks them between processes.
package keyfile
