// Package canon holds the two encodings that are ever hashed: canonical CBOR
// and canonical JSON.
package canon
