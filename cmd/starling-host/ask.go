package main

import (
	"bufio"
	"context"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/terminal"
)

// asking returns a context whose runs ask the person at the terminal for confirmations that a
// policy requires.
func (a *app) asking(ctx context.Context) context.Context {
	if !terminal.Is(a.stdin) || !a.stderr.Terminal {
		return ctx
	}
	var one sync.Mutex // at a time
	return policy.WithAsker(ctx, func(ctx context.Context, q policy.Question) (string, error) {
		one.Lock()
		defer one.Unlock()
		_, _ = io.WriteString(a.stderr.Lines(), q.Text+"\n")
		if q.Partial {
			a.stderr.Printf("Some arguments above are shortened.\n")
			return a.confirm(ctx, "Do you allow it all the same?", "allow"), nil
		}
		return a.confirm(ctx, "Do you allow it?", "y", "yes"), nil
	})
}

// confirm asks a question and returns the answer: policy.Accept for a line with one of the words,
// policy.Cancel without a line, because the input or the context has ended, and otherwise
// policy.Decline.
func (a *app) confirm(ctx context.Context, question string, words ...string) string {
	a.stderr.Printf("%s [%s/N] ", question, words[0])
	line, err := await.Do(ctx, func() (string, error) { return bufio.NewReader(a.stdin).ReadString('\n') })
	switch word := strings.ToLower(strings.TrimSpace(line)); {
	case slices.Contains(words, word):
		return policy.Accept
	case err != nil && word == "":
		return policy.Cancel
	}
	return policy.Decline
}
