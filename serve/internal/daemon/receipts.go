package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/serve/internal/share"
)

// mostSearched bounds how many of the newest runs are searched for a result.
const mostSearched = 1000

// runReceipts answers with the receipts of the calls of a run.
func (d *Daemon) runReceipts(r *request) (page list[*receipt.Receipt], err error) {
	if r.view.Issuer == nil {
		return page, noReceipts()
	}
	s, err := d.find(r)
	if err != nil {
		return page, err
	}
	page.Items, err = r.view.Receipts(r.Context(), s.RunID)
	if errors.Is(err, receipt.ErrOpen) {
		return page, notEnded.because("run %s has not ended", s.RunID).hint("wait for its end: GET " + base + "/runs/" + s.RunID + "/stream")
	}
	page.Items = append([]*receipt.Receipt{}, page.Items...)
	return page, err
}

// findReceipts answers with the receipts of the calls that have a result with this SHA-256, of the
// newest runs: for clients that hold nothing but the result.
func (d *Daemon) findReceipts(r *request) (page list[*receipt.Receipt], err error) {
	if r.view.Issuer == nil {
		return page, noReceipts()
	}
	digest, err := hex.DecodeString(r.query.text("sha256"))
	if err != nil || len(digest) != sha256.Size {
		return page, badField.because("sha256 is not the SHA-256 of the text of a result in hexadecimal").in("sha256")
	}
	page.Items = []*receipt.Receipt{}
	for run, err := range r.view.Newest(r.Context(), eventlog.RunPageOptions{Limit: mostRuns, RequireToolCalls: true}, mostSearched, new(bool)) {
		var calls []string
		if err == nil && run.TerminalKind != 0 {
			calls, err = d.callsWith(r, run.RunID, [sha256.Size]byte(digest))
		}
		var all []*receipt.Receipt
		if err == nil && len(calls) > 0 {
			all, err = r.view.Receipts(r.Context(), run.RunID)
		}
		for _, call := range calls {
			if one := receipt.OfCall(all, call); one != nil {
				page.Items = append(page.Items, one)
			}
		}
		if err != nil || len(calls) > 0 {
			return page, err
		}
	}
	return page, nil
}

// callsWith returns the calls of a run whose result has a SHA-256.
func (d *Daemon) callsWith(r *request, id string, digest [sha256.Size]byte) (calls []string, err error) {
	if err := share.Step(r.Context()); err != nil {
		return nil, err
	}
	for ev, err := range r.view.Events(r.Context(), id, 0) {
		if err != nil {
			return nil, err
		}
		p, err := ev.AsToolCallCompleted()
		if err != nil { // of another kind
			continue
		}
		doc, err := canon.ToJSON(p.Result)
		if err == nil && sha256.Sum256([]byte(receipt.Text(doc))) == digest {
			calls = append(calls, p.CallID)
		}
	}
	return calls, nil
}

func noReceipts() *Problem {
	return notFound.because("the host signs no receipts").hint("its operator names a key under receipts in host.yaml")
}
