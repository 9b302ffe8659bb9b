// Package cachefile keeps bytes in the files of caches, so that what is read again is what
// was written, or nothing: a file is BLAKE3-256 of the rest, and is there as a whole or
// not at all. The folder of a cache belongs to the user, and nobody else can enter it.
package cachefile
