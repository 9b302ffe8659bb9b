// Package program says which program this process is, to start another process of it,
// and to tell apart what two versions of it have kept.
package program
