package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/sandbox"
)

// replayAll replays every run of the database, oldest first, and prints those
// that are not identical and a summary; as JSON, one document for each run.
func (a *app) replayAll(ctx context.Context, db *starling.DB, r *starling.Replayer, f replayFlags) error {
	ids, unlisted := db.RunIDs(ctx)
	if unlisted != nil && len(ids) == 0 {
		return unreadable(ctx, unlisted)
	}
	bar := a.progressBar(len(ids), progressbar.OptionShowCount())
	var total tally
	err := r.ReplayAll(ctx, ids, func(v starling.Verdict) error {
		_ = bar.Add(1)
		total.add(v)
		if f.output == outputText && (v.Erased || verdictCode(v) == exitOK) {
			return nil
		}
		return a.printVerdict(v, f)
	})
	_ = bar.Exit()
	if err != nil {
		return interrupted(ctx, err, "replayed", total.runs, len(ids))
	}
	if f.output == outputText {
		a.stdout.printf("%s\n", total.String())
	}
	if unlisted != nil {
		return unreadable(ctx, unlisted)
	}
	return silent(total.code)
}

// progressBar returns a bar on standard error if that is a terminal, and one
// that shows nothing if it is not. It is drawn ten times a second at most.
func (a *app) progressBar(n int, more ...progressbar.Option) *progressbar.ProgressBar {
	return progressbar.NewOptions(n, append(more,
		progressbar.OptionSetWriter(a.stderr.raw()),
		progressbar.OptionSetDescription("replay"),
		progressbar.OptionSetVisibility(a.stderr.terminal),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)...)
}

// tally counts verdicts.
type tally struct {
	runs, identical, open, diverged, invalid, undecided, refused, erased int
	code                                                                 int
}

func (t *tally) add(v starling.Verdict) {
	t.runs++
	if v.Erased { // on purpose and for good: it would make all later replays fail
		t.erased++
		return
	}
	switch {
	case v.Corrupt != nil:
		t.invalid++
	case errors.Is(v.Refused, sandbox.ErrTooDeep):
		t.undecided++
	case v.Refused != nil:
		t.refused++
	case v.Divergence != nil:
		t.diverged++
	case v.Open:
		t.open++
	default:
		t.identical++
	}
	t.code = worse(t.code, verdictCode(v))
}

// worse returns the exit code that stands for both: a log that lies before one
// that cannot be looked into, and that before any other failure.
func worse(a, b int) int {
	for _, code := range []int{exitInvalid, exitRefused} {
		if a == code || b == code {
			return code
		}
	}
	return max(a, b)
}

func (t *tally) String() string {
	parts := []string{fmt.Sprintf("%d identical", t.identical)}
	for _, p := range []struct {
		n    int
		what string
	}{{t.open, "open and identical so far"}, {t.diverged, "diverged"}, {t.invalid, "invalid"}, {t.undecided, "not decided"}, {t.refused, "not replayed"}, {t.erased, "of tenants that were erased"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return fmt.Sprintf("%s: %s", plural(t.runs, "run"), strings.Join(parts, ", "))
}
