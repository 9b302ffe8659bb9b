//go:build js

// Verifier checks and replays the runs of bundles, on the engine of JavaScript that
// executes it. It serves package verifier under Node, and the pages that bundle --html
// makes in browsers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"syscall/js"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
)

// message is what the program tells the page. One of its fields is set.
type message struct {
	Certificate *seal.Certificate     `json:"certificate,omitempty"` // the bundle is what it says
	Proofs      *proofs               `json:"proofs,omitempty"`
	Run         *shown                `json:"run,omitempty"` // that is about to be replayed
	Progress    *progress             `json:"progress,omitempty"`
	Verdict     *agent.ReplayDocument `json:"verdict,omitempty"` // of a run
	Error       string                `json:"error,omitempty"`   // why there is nothing more
	Done        bool                  `json:"done,omitempty"`
}

// proofs says what the proofs of a bundle are worth.
type proofs struct {
	Checkpoint *seal.CheckpointDocument `json:"checkpoint,omitempty"` // nil: the bundle has no proofs
	Signed     []string                 `json:"signed,omitempty"`     // by these keys, which the policy trusts
	Receipts   int                      `json:"receipts,omitempty"`   // each says what its run says
	Error      string                   `json:"error,omitempty"`
}

type progress struct {
	RunID   string `json:"run_id"`
	Matched int    `json:"matched"` // events
	Of      int    `json:"of"`
	Fuel    uint64 `json:"fuel"`
}

// main gives the page the function starling.verify: (file Uint8Array, options, tell) ->
// undefined. It calls tell with messages, the last of which has done.
func main() {
	debug.SetGCPercent(50) // the memory of a page does not shrink
	v := &verifier{}
	verify := js.FuncOf(func(_ js.Value, args []js.Value) any {
		file := make([]byte, args[0].Length())
		js.CopyBytesToGo(file, args[0])
		options, tell := args[1], args[2]
		v.tell = func(m message) {
			text, err := json.Marshal(m)
			if err != nil {
				text, _ = json.Marshal(message{Error: err.Error()})
			}
			tell.Invoke(string(text))
		}
		o := verifyOptions{events: options.Get("events").Truthy(), onlyProofs: options.Get("onlyProofs").Truthy()}
		if policy := options.Get("policy"); policy.Type() == js.TypeString {
			o.policy = policy.String()
		}
		go v.verify(file, o) // not in the callback, which must not wait
		return nil
	})
	js.Global().Get("starling").Set("verify", verify)
	js.Global().Get("starling").Call("ready")
	select {}
}

// verifyOptions are what the page wants.
type verifyOptions struct {
	policy     string // of the signatures; empty for none
	events     bool   // to show them
	onlyProofs bool   // the bundle was verified before
}

// verifier verifies one bundle after the other, with modules that stay loaded.
type verifier struct {
	tell     func(message)
	bundle   seal.Bundle
	recorded *guest.RecordedModules

	now  progress
	told time.Time
}

// Module implements [eventlog.ModuleReader], with the modules of the bundle of the moment.
func (v *verifier) Module(ctx context.Context, digest canon.Hash) ([]byte, error) {
	return v.bundle.Module(ctx, digest)
}

func (v *verifier) verify(file []byte, o verifyOptions) {
	err := v.check(context.Background(), file, o)
	last := message{Done: true}
	if err != nil {
		last.Error = err.Error()
	}
	v.tell(last)
}

func (v *verifier) check(ctx context.Context, file []byte, o verifyOptions) error {
	b, certificate, err := seal.OpenBundle(ctx, file)
	if err != nil {
		return err
	}
	if o.onlyProofs {
		v.tell(message{Proofs: proofsOf(b, certificate, o.policy)})
		return nil
	}
	v.tell(message{Certificate: &certificate})
	v.tell(message{Proofs: proofsOf(b, certificate, o.policy)})
	if v.recorded == nil {
		engine, err := sandbox.New(ctx, sandbox.Config{Observers: sandbox.Observers{Progress: func(fuel uint64) { v.now.Fuel += fuel; v.progress() }}})
		if err != nil {
			return err
		}
		v.recorded = guest.NewRecorded(guest.Inline(engine), v, nil, agentfile.Offline)
	}
	v.bundle = b
	for _, run := range b.Runs {
		if o.events {
			v.tell(message{Run: show(run)})
		}
		doc := v.replay(ctx, run)
		v.tell(message{Verdict: &doc})
	}
	v.bundle = seal.Bundle{} // the modules that are loaded stay with their cache
	return nil
}

// proofsOf checks the proofs and the receipts, and the signatures as the policy wants them, if there is
// one.
func proofsOf(b seal.Bundle, c seal.Certificate, text string) *proofs {
	p := &proofs{Checkpoint: c.Checkpoint}
	var policy *seal.Policy
	var err error
	if text != "" {
		policy, err = seal.ParsePolicy(text)
	}
	var signatures []seal.Signature
	if err == nil {
		signatures, p.Receipts, _, err = receipt.CheckEvidence(b, policy)
	}
	if err != nil {
		p.Error = err.Error()
	}
	for _, s := range signatures {
		if s.AnyLog {
			s.Key += " (this key accepts any of its logs)"
		}
		p.Signed = append(p.Signed, s.Key)
	}
	return p
}

func (v *verifier) replay(ctx context.Context, run []event.Event) agent.ReplayDocument {
	id := run[0].RunID
	v.now, v.told = progress{RunID: id, Of: len(run)}, time.Time{}
	lease := v.recorded.Lease()
	defer lease.Release()
	verdict, err := agent.Replay(ctx, run, lease.Resolve, agent.ReplayOptions{Matched: func(event.Event) { v.now.Matched++; v.progress() }})
	if err == nil {
		return verdict.Document(id)
	}
	doc := agent.ReplayDocument{RunID: id, Verdict: agent.NotReplayed, Error: err.Error()}
	switch {
	case errors.Is(err, sandbox.ErrTooDeep):
		doc.Verdict = agent.NotDecided
	case errors.Is(err, eventlog.ErrLogCorrupt):
		doc.Verdict = agent.Invalid
	case errors.Is(err, event.ErrEncrypted):
		doc.Error = "the run is encrypted, and a bundle has no keys"
	}
	return doc
}

// progress tells how far the replay is, ten times a second.
func (v *verifier) progress() {
	if time.Since(v.told) < 100*time.Millisecond {
		return
	}
	v.told = time.Now()
	now := v.now
	v.tell(message{Progress: &now})
}
