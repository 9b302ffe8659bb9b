package main

import (
	"errors"

	"github.com/fxamacker/cbor/v2"
)

// inclusion reads the inclusion proof of a COSE receipt: a CBOR array of size, index and path in a
// byte string.
func inclusion(item any) (size, index uint64, path [][]byte, err error) {
	encoded, ok := item.([]byte)
	if !ok {
		return 0, 0, nil, errors.New("the inclusion proof is not a byte string")
	}
	var p struct {
		_     struct{} `cbor:",toarray"`
		Size  uint64
		Index uint64
		Path  [][]byte
	}
	err = cbor.Unmarshal(encoded, &p)
	return p.Size, p.Index, p.Path, err
}
