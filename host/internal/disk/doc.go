// Package disk says how much room there is on the disk of a file.
package disk
