// Package keyfile reads and writes files that only their owner may read, such as key files. It
// also replaces files in one step, and locks them between processes.
package keyfile
