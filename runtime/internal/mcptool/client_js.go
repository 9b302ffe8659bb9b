package mcptool

import (
	"context"
	"encoding/json"

	"github.com/starling-host/starling/runtime/tool"
)

// Client presents the tools of a server that does not exist: on js runs are replayed.
type Client struct {
	options     Options
	tools       []tool.Tool
	definitions []Definition
}

func newClient(o Options) *Client { return &Client{options: o} }

func (*remoteTool) call(context.Context, json.RawMessage) (answer, error) {
	return answer{}, errOffline
}
