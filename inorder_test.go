package starling

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInOrder(t *testing.T) {
	var ids []string
	for i := range 100 {
		ids = append(ids, strconv.Itoa(i))
	}
	failed := errors.New("failed")
	echo := func(_ context.Context, id string) (string, error) { return id, nil }

	t.Run("results come in the order of the ids", func(t *testing.T) {
		var got []string
		err := inOrder(t.Context(), ids, echo, func(id string) error { got = append(got, id); return nil })
		if d := cmp.Diff(ids, got); d != "" || err != nil {
			t.Error(err, d)
		}
	})
	t.Run("nothing to do", func(t *testing.T) {
		if err := inOrder(t.Context(), nil, echo, func(string) error { return failed }); err != nil {
			t.Error(err)
		}
	})
	t.Run("an error of the work ends it", func(t *testing.T) {
		seen := 0
		err := inOrder(t.Context(), ids, func(_ context.Context, id string) (string, error) {
			if id == "7" {
				return "", failed
			}
			return id, nil
		}, func(string) error { seen++; return nil })
		if !errors.Is(err, failed) || seen != 7 {
			t.Errorf("got %v after %d results", err, seen)
		}
	})
	t.Run("an error of the receiver ends it", func(t *testing.T) {
		if err := inOrder(t.Context(), ids, echo, func(string) error { return failed }); !errors.Is(err, failed) {
			t.Error(err)
		}
	})
	t.Run("cancellation ends it", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		err := inOrder(ctx, ids, func(ctx context.Context, _ string) (string, error) {
			cancel()
			<-ctx.Done()
			return "", ctx.Err()
		}, func(string) error { return nil })
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
