// Package fairtest holds how long calls take beside others against how long they take
// alone.
package fairtest
