// Package keyfile reads and writes files that only their owner may read, such as those with
// keys, and locks files between processes.
package keyfile
