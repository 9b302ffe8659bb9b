package mcpsrv

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestAnAbandonedQuestionEndsItsCall: a client asks a tool, gets a question and never comes back.
func TestAnAbandonedQuestionEndsItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &questions{life: t.Context(), waiting: map[string]waitingCall{}}
		r := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "x"}}
		c, err := q.enter(t.Context(), r, true, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			ask := ctx.Value(askerKey{}).(asker)
			for range 2 { // two requests to hosts that the policy asks about
				if _, err := ask(ctx, "elicitation/create", nil); err != nil {
					return nil, err
				}
			}
			return &mcp.CallToolResult{}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		asked := <-c.asked // as asking does
		q.mu.Lock()
		q.waiting["state"] = waitingCall{c, asked}
		q.mu.Unlock()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		select {
		case <-c.done:
		default:
			t.Error("a day later the call is still open")
		}
		if len(q.waiting) > 0 {
			t.Error("a day later the question is still kept")
		}
		c.cancel(nil)
	})
}
