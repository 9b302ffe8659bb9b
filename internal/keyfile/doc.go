// Package keyfile reads and writes files that only their owner may read, such as key files,
// and locks files between processes.
package keyfile
