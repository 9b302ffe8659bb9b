// Package disk reports the free room on the disk of a file.
package disk
