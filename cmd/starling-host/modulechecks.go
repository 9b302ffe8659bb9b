package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/event"
)

// moduleChecks checks the modules that runs name, each once: thousands of runs name the
// same module, of which all bytes have to be read and hashed.
type moduleChecks struct {
	store eventlog.ModuleStore

	mu    sync.Mutex            // held while a module is checked, for which others would wait anyway
	found map[chain.Hash]string // what is wrong with each; guarded by mu
}

func newModuleChecks(store eventlog.ModuleStore) *moduleChecks {
	return &moduleChecks{store: store, found: make(map[chain.Hash]string)}
}

// of checks that the modules which the first event of a run names are there and
// unchanged.
func (m *moduleChecks) of(ctx context.Context, first event.Event) error {
	started, err := first.AsRunStarted()
	if err != nil {
		return err
	}
	for _, ref := range started.ToolSchemas {
		if ref.Sandbox == nil {
			continue
		}
		if reason := m.check(ctx, ref.Sandbox.Module); reason != "" {
			return &eventlog.CorruptError{RunID: first.RunID, Seq: first.Seq, Kind: first.Kind,
				Reason: fmt.Sprintf("module %x of tool %q %s", ref.Sandbox.Module, ref.Name, reason)}
		}
	}
	return nil
}

// check returns what is wrong with a module, nothing if all is well.
func (m *moduleChecks) check(ctx context.Context, digest []byte) string {
	if len(digest) != len(chain.Hash{}) {
		return "has a digest of the wrong length"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := chain.Hash(digest)
	reason, known := m.found[sum]
	if !known {
		reason = m.read(ctx, sum)
		m.found[sum] = reason
	}
	return reason
}

func (m *moduleChecks) read(ctx context.Context, digest chain.Hash) string {
	_, err := m.store.Module(ctx, digest)
	switch {
	case errors.Is(err, eventlog.ErrModuleNotFound):
		return "is not in the database"
	case err != nil:
		return "cannot be read: " + plainError(err)
	}
	return ""
}
