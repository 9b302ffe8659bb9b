// Package cachefile keeps bytes in the files of caches; a read returns exactly the bytes
// written, or nothing. A file begins with the BLAKE3-256 of the rest, and appears as a
// whole or not at all. The folder of a cache belongs to the user, and no other user can
// enter it.
package cachefile
