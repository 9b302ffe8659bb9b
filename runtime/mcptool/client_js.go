package mcptool

import (
	"context"

	"github.com/starling-host/starling/eventlog/canon"
)

// Client presents the tools of a server that does not exist: on js runs are replayed.
type Client struct{ presented }

func newClient(o Options) *Client { return &Client{presented{options: o}} }

func (*remoteTool) call(context.Context, *canon.Doc) (answer, error) {
	return answer{}, errOffline
}
