package mcptool

import (
	"context"
	"encoding/json"
)

// Assistant is the client on whose behalf a server is connected: the server hears what it says of
// itself, and it hears what belongs to no call. Any part may be empty.
type Assistant struct {
	Version            string          // of the protocol; empty for the newest
	Capabilities, Info json.RawMessage // of the client, as it wrote them; nil for none, and for ours

	// Ask sends the client a request of the server, and Hear a notification.
	Ask  func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
	Hear func(method string, params json.RawMessage)
}

// introduce replaces what the SDK says of itself.
func (a *Assistant) introduce(m members, info, capabilities string) {
	if m[info] != nil && a.Info != nil {
		m[info] = a.Info
	}
	if m[capabilities] != nil && a.Capabilities != nil {
		m[capabilities] = a.Capabilities
	}
}

// Call is a call on behalf of an assistant. Any part may be empty.
type Call struct {
	Meta  map[string]json.RawMessage // the _meta of the request
	Other map[string]json.RawMessage // members of its params that no type has

	// Ask sends the client a request of the server, about a tool with the server's name. An error
	// of the client is a [*jsonrpc.Error]. Nil if the client cannot be asked.
	Ask func(ctx context.Context, tool, method string, params json.RawMessage) (json.RawMessage, error)

	// Hear gets the server's notifications, in their order, before the answer.
	Hear func(method string, params json.RawMessage)

	// Replied gets what Ask returned, also in a replay.
	Replied func(method string, result json.RawMessage, refused error)

	// Answered gets the result, or the error, as the server wrote it, also in a replay.
	Answered func(result, refused json.RawMessage)
}

type callKey struct{}

// For returns a context for calls on behalf of an assistant.
func For(ctx context.Context, c *Call) context.Context { return context.WithValue(ctx, callKey{}, c) }

// members are those of a JSON object, as they were written.
type members = map[string]json.RawMessage
