// Package cipherlog encrypts what a tenant's runs contain.
//
// A [Key] is a tenant's data key. Each run has a key of its own, derived from
// the data key and the run's id, so that what belongs to one run opens nothing of
// another. Whoever destroys the data key has erased the runs.
package cipherlog

import "errors"

var errNoKey = errors.New("cipherlog: there is no data key")
