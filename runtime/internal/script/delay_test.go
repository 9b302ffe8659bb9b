package script_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/runtime/internal/script"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

// TestDelay has time that passes only when everything waits.
func TestDelay(t *testing.T) {
	p := model(t, script.Script{{Text: "a b c", Delay: time.Minute}})
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if _, err := providertest.Converse(t.Context(), p, ask(0, "")); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != 4*time.Minute {
			t.Errorf("five chunks took %v", took)
		}
	})
	for name, c := range map[string]struct {
		stop func(cancelStream, cancelNext func(), s provider.EventStream)
		want error
	}{
		"the stream's context": {func(cancel, _ func(), _ provider.EventStream) { cancel() }, context.Canceled},
		"the context of Next":  {func(_, cancel func(), _ provider.EventStream) { cancel() }, context.Canceled},
		"close":                {func(_, _ func(), s provider.EventStream) { s.Close() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stopped(t, p, c.stop, c.want) })
		})
	}
}

// stopped ends a stream while it waits between two chunks.
func stopped(t *testing.T, p provider.Provider, stop func(_, _ func(), _ provider.EventStream), want error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	nextCtx, cancelNext := context.WithCancel(t.Context())
	defer cancelNext()
	stream, err := p.Stream(ctx, ask(0, ""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(nextCtx); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	go func() {
		synctest.Wait()
		stop(cancel, cancelNext, stream)
	}()
	if _, err = stream.Next(nextCtx); err == nil || want != nil && !errors.Is(err, want) || time.Since(begun) != 0 {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
	if _, again := stream.Next(t.Context()); again != err {
		t.Errorf("%v, and then %v", err, again)
	}
}

func TestAnEndedContextGetsNoAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := model(t, parse(t, dice)).Stream(ctx, ask(0, "")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
