// Package program identifies the program of this process, to start another process of
// it, and to tell apart the cache entries of two versions.
package program
