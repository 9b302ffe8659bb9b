// Package chain hashes events and folds their hashes into one.
package chain
