package mcptool

import (
	"context"

	"github.com/starling-host/starling/eventlog/canon"
)

// Client presents the tools of a server for replays: on js there are no live runs.
type Client struct{ presented }

func newClient(o Options) *Client { return &Client{presented{options: o}} }

func (*remoteTool) call(context.Context, *canon.Doc) (answer, error) {
	return answer{}, errOffline
}
