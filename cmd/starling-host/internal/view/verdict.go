package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/runtime/agent"
)

// MostProblems is how many problems are printed.
const MostProblems = 20

// SealReport prints how the runs of a database, and of so many archives, compare with its seals.
func SealReport(w *terminal.Printer, r seal.Report, where string, archives int) {
	runs := r.Newest.Leaves - int64(len(r.Removals))
	switch r.Verdict() {
	case "invalid":
		w.Printf("%s: %s\n", terminal.Bad.Of("invalid"), display.Plural(len(r.Problems), "problem"))
	case "unexplained":
		w.Printf("%s: %s sealed, %d missing without a recorded removal\n", terminal.Bad.Of("unexplained"), display.Plural(uint64(runs), "run"), len(r.Unexplained))
	default:
		w.Printf("%s: %s as sealed\n", terminal.Good.Of("valid"), display.Plural(uint64(r.Present), "run"))
	}
	for i, p := range append(slices.Clone(r.Problems), r.Unexplained...) {
		if i == MostProblems {
			w.Printf("  and %d more\n", len(r.Problems)+len(r.Unexplained)-i)
			break
		}
		w.Printf("  %s\n", p)
	}
	w.Printf("\n%s\n", terminal.Strong.Of("Sealed"))
	w.Printf("  log         %s\n", r.Newest.Origin)
	w.Printf("  checkpoint  %s, root %s\n", Leaves(r.Newest, int64(len(r.Removals))), r.Newest.Root)
	if !r.Signed.IsZero() {
		w.Printf("              %s UTC, time claimed by the database; %s, consistent\n", r.Signed.UTC().Format(time.DateTime), display.Plural(r.Checkpoints, "checkpoint"))
	}
	signatures(w, r.Signatures)
	w.Printf("  runs        %d as sealed, %d removed; %d not sealed, %d open\n", r.Present, r.Gone, r.Unsealed, r.Open)
	if archives > 0 {
		w.Printf("  archives    %d of the removed runs as sealed in %s, %d in none\n", r.Archived, display.Plural(archives, "file"), r.Gone-r.Archived)
	}
	Removals(w, r.Removals)
	notProven(w, len(r.Signatures) > 0, "that the tools did what is recorded; to check, run "+display.Command("starling-host replay --all", store.Name(where)),
		"that no run was left out before it was sealed")
}

// signatures prints the signatures of a checkpoint that were checked.
func signatures(w *terminal.Printer, all []seal.Signature) {
	if len(all) == 0 {
		w.Printf("  signed by   %s\n", terminal.Middle.Of("not checked: no key was given"))
	}
	for _, s := range all {
		if s.Witness {
			w.Printf("  witness     %s, %s UTC\n", s.Key, s.Time.Format(time.DateTime))
			continue
		}
		w.Printf("  signed by   %s\n", terminal.Good.Of(s.VKey))
		if s.AnyLog {
			w.Printf("              %s\n", terminal.Middle.Of("this key accepts any of its logs; to accept only this one, pass the key above with --key"))
		}
	}
}

// Removals prints the newest removals.
func Removals(w *terminal.Printer, all []seal.Removal) {
	if earlier := len(all) - MostProblems; earlier > 0 {
		w.Printf("  removed     %d earlier ones\n", earlier)
		all = all[earlier:]
	}
	for _, r := range all {
		w.Printf("  removed     %s, %s UTC by %s: %s\n", r.RunID, r.At.UTC().Format(time.DateTime), cmp.Or(r.By, "?"), cmp.Or(r.Why, "no reason given"))
	}
}

// notProven prints the limits of a verification.
func notProven(w *terminal.Printer, trusted bool, more ...string) {
	w.Printf("\n%s\n", terminal.Strong.Of("Not proven"))
	if !trusted {
		more = append([]string{"who sealed it; to check, pass the public key with --key"}, more...)
	}
	for _, line := range append(more, "that the clock of the host was right, and that servers and models told the truth") {
		w.Printf("  %s\n", line)
	}
}

// Bundle prints the verdict on a bundle of the given size, and how long it took. If its runs were to be
// replayed, refused returns why one was not; otherwise it is nil.
func Bundle(w *terminal.Printer, v starling.BundleVerdict, size int, took time.Duration, refused func(starling.Verdict) string) {
	if v.Invalid != nil {
		invalid(w, v.Invalid)
		return
	}
	doc := v.Document()
	events, encrypted := uint64(0), 0
	for _, run := range v.Certificate.Runs {
		events += run.Events
		if run.Encrypted {
			encrypted++
		}
	}
	what := fmt.Sprintf("%s, %s, %s; %s in %s", display.Plural(len(v.Certificate.Runs), "run"), display.Plural(events, "event"),
		display.Plural(len(v.Certificate.Modules), "module"), display.Size(uint64(size)), display.Duration(took))
	w.Printf("%s: %s\n\n", terminal.StatusStyle(doc.Verdict).Of(strings.ReplaceAll(doc.Verdict, "_", " ")), what)
	for i, run := range v.Certificate.Runs {
		verdict := "not executed"
		if i < len(v.Runs) {
			if verdict = v.Runs[i].String(); v.Runs[i].Refused != nil {
				verdict = strings.ReplaceAll(doc.Replays[i].Verdict, "_", " ") + ": " + refused(v.Runs[i])
			}
		}
		word, rest, found := strings.Cut(verdict, ":")
		if found {
			rest = ":" + rest
		}
		w.Printf("  %s  %s, %s%s\n", run.RunID, run.Status, terminal.StatusStyle(word).Of(word), rest)
		asked, answered := "", ""
		for _, e := range v.Bundle.Runs[i] {
			switch line := event.Line(e, 100); e.Kind {
			case event.KindUserMessageAppended, event.KindToolCallScheduled:
				asked = cmp.Or(asked, line)
			case event.KindAssistantMessageCompleted, event.KindToolCallCompleted, event.KindToolCallFailed:
				answered = line
			}
		}
		if !run.Encrypted && asked != "" {
			w.Printf("    asked     %s\n    answered  %s\n", asked, cmp.Or(answered, "nothing"))
		}
	}
	if v.Receipts > 0 {
		by := terminal.Middle.Of("signatures not checked: no key was given")
		if v.ReceiptsBy != "" {
			by = terminal.Good.Of("signed by " + v.ReceiptsBy)
		}
		w.Printf("  %s: each says what its run says; %s\n", display.Plural(v.Receipts, "receipt"), by)
	}
	w.Printf("\n%s\n", terminal.Strong.Of("Sealed"))
	if v.Sealed {
		checkpoint(w, v.Checkpoint, v.Signatures)
	} else {
		w.Printf("  %s\n", terminal.Middle.Of("no: the author of the file may have invented its runs"))
	}
	var more []string
	if refused == nil {
		more = append(more, "that the tools did what is recorded; to check, omit --no-replay")
	}
	if encrypted > 0 {
		more = append(more, display.Plural(encrypted, "run")+" of a tenant: encrypted, not executed without the key")
	}
	notProven(w, len(v.Signatures) > 0 || !v.Sealed, more...)
}

// Proof prints whether a run, or an event of one, is in a log.
func Proof(w *terminal.Printer, v starling.ProofVerdict) {
	if v.Invalid != nil {
		invalid(w, v.Invalid)
		return
	}
	what := fmt.Sprintf("run %s, of %s, is in the log", v.Leaf.RunID, display.Plural(v.Leaf.Events, "event"))
	if v.Event != nil {
		what = fmt.Sprintf("event %d of %d of run %s is in the log", v.Event.Seq, v.Leaf.Events, v.Leaf.RunID)
	}
	w.Printf("%s: %s\n", terminal.Good.Of("valid"), what)
	if v.Event != nil {
		if line, err := event.ToJSON(*v.Event); err == nil {
			w.Printf("%s\n", string(line))
		}
	}
	w.Printf("\n%s\n", terminal.Strong.Of("Sealed"))
	checkpoint(w, v.Checkpoint, v.Signatures)
	notProven(w, len(v.Signatures) > 0, "that the tool did what is recorded; to check, verify a bundle of the run")
}

// checkpoint prints the checkpoint of a log, and its signatures.
func checkpoint(w *terminal.Printer, c seal.Checkpoint, signed []seal.Signature) {
	w.Printf("  log         %s\n  checkpoint  tree size %d, root %s\n", c.Origin, c.Leaves, c.Root)
	signatures(w, signed)
}

// invalid prints why a file is not valid.
func invalid(w *terminal.Printer, err error) {
	w.Printf("%s: %s\n", terminal.Bad.Of("invalid"), starling.PlainError(err))
}

// Receipt prints what a receipt says, and who signed it.
func Receipt(w *terminal.Printer, v starling.ReceiptVerdict) {
	if v.Invalid != nil {
		invalid(w, v.Invalid)
		return
	}
	c := v.Checked
	p := c.Statement.Predicate
	w.Printf("%s: %s\n", terminal.Good.Of("valid"), c.Statement)
	line := func(name, text string) {
		if text != "" {
			w.Printf("  %-11s %s\n", name, text)
		}
	}
	digest := p.Tool.Digest["blake3"]
	line("tool", fmt.Sprintf("%s %s", p.Tool.Name, cmp.Or(digest, p.Tool.Source)))
	if p.Caller != nil {
		line("caller", p.Caller.String())
	}
	if p.Policy != nil {
		line("policy", cmp.Or(p.Policy.Decision, "held"))
	}
	line("time", p.ScheduledAt+" to "+cmp.Or(p.CompletedAt, "?"))
	for _, s := range c.Statement.Subject {
		line(s.Name, "sha256 "+s.Digest["sha256"])
	}
	if c.SignedBy == "" {
		w.Printf("  signed by   %s\n", terminal.Middle.Of("not checked: no key was given"))
	} else {
		w.Printf("  signed by   %s\n", terminal.Good.Of(c.SignedBy))
	}
	limits := []string{"that the result is true: it was recorded as received"}
	if p.Evidence == receipt.Reexecutable {
		limits = []string{"that the result follows; to check, verify a bundle of the run, which executes it"}
	}
	if c.Checkpoint != nil {
		line("checkpoint", fmt.Sprintf("%s, tree size %d, root %s", c.Checkpoint.Origin, c.Checkpoint.Leaves, c.Checkpoint.Root))
		signatures(w, c.Signatures)
	} else {
		limits = append(limits, "that the run is in a log; to check, print the receipt again after the next seal")
	}
	notProven(w, c.SignedBy != "", limits...)
}

// Divergence explains where a replay left its recording:
//
//	diverged at event 4 of 7 (SideEffectRecorded), run 01J...
//	  class     payload
//	  field     request
//	  expected  GET http://127.0.0.1/customers/41
//	  got       GET http://127.0.0.1/customers/42
//	                                          ^
func Divergence(w *terminal.Printer, d *agent.Divergence, events int) {
	w.Printf("%s at event %d of %d (%s), run %s\n", terminal.Bad.Of("diverged"), d.Seq, events, agent.KindName(d.ExpectedKind), d.RunID)
	w.Printf("  class     %s\n", d.Class)
	if d.Kind != d.ExpectedKind {
		w.Printf("  kind      expected %s, got %s\n", agent.KindName(d.ExpectedKind), agent.KindName(d.Kind))
	}
	if d.Field != "" {
		w.Printf("  field     %s\n", display.ASCII(d.Field))
	}
	if d.Reason != "" {
		w.Printf("  reason    %s\n", d.Reason)
	}
	if d.Expected == "" && d.Got == "" {
		return
	}
	expected, got, caret := display.AroundDifference(d.Expected, d.Got)
	w.Printf("  expected  %s\n  got       %s\n", expected, got)
	if caret >= 0 {
		w.Printf("            %s^\n", strings.Repeat(" ", caret))
	}
}

// Leaves describes the leaves of a log.
func Leaves(c seal.Checkpoint, removed int64) string {
	what := display.Plural(uint64(c.Leaves-removed), "run")
	if removed > 0 {
		what += " and " + display.Plural(uint64(removed), "removal")
	}
	return what
}
