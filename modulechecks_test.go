package starling

import (
	"context"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
)

// reads counts how often each module is read.
type reads map[canon.Hash]int

func (r reads) PutModule(context.Context, []byte) (canon.Hash, error) { panic("unused") }

func (r reads) HasModule(context.Context, canon.Hash) (bool, error) { panic("unused") }

func (r reads) Module(_ context.Context, digest canon.Hash) ([]byte, error) {
	r[digest]++
	if digest[0] == 0 {
		return nil, eventlog.ErrModuleNotFound
	}
	return nil, nil
}

// TestAModuleIsCheckedOnce checks the modules of many runs: each is read once, whatever
// is wrong with it.
func TestAModuleIsCheckedOnce(t *testing.T) {
	store := make(reads)
	checks := newModuleChecks(store)
	there, gone := canon.Hash{1}, canon.Hash{}
	for range 3 {
		if reason, err := checks.check(t.Context(), there[:]); err != nil || reason != "" {
			t.Error(reason)
		}
		if reason, _ := checks.check(t.Context(), gone[:]); reason != "is not in the database" {
			t.Errorf("%q", reason)
		}
	}
	if store[there] != 1 || store[gone] != 1 {
		t.Errorf("read %v times", store)
	}
}
