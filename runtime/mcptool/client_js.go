package mcptool

import (
	"context"

	"github.com/starling-host/starling/eventlog/canon"
)

// Client presents the tools of a server for replays: on js there are no live runs.
type Client struct{ presented }

func newClient(o Options) *Client { return &Client{presented{options: o}} }

// conversation is one that only a record has.
type conversation struct{}

func (*remoteTool) converse(context.Context, *canon.Doc) conversation { return conversation{} }

func (conversation) next(*canon.Doc) (answer, error) { return answer{}, errOffline }
func (conversation) ask(*asked) (answer, error)      { return answer{}, errOffline }
func (conversation) reply(*asked, answer, error)     {}
func (conversation) close()                          {}
func (conversation) answered(answer)                 {}
