//go:build !js

package mcptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/tool"
)

// call asks the server. Its errors name the tool, for they reach the log as text.
func (t *remoteTool) call(ctx context.Context, arguments json.RawMessage) (answer, error) {
	result, err := t.client.call(ctx, t.remote, arguments)
	var got answer
	if err == nil {
		got, err = t.client.options.answer(result)
	}
	if err != nil {
		return answer{}, fmt.Errorf("mcptool: tool %q: %w", t.name, err)
	}
	return got, nil
}

// call makes one request to the server.
func (c *Client) call(ctx context.Context, name string, arguments json.RawMessage) (*mcp.CallToolResult, error) {
	ctx, release := c.within(ctx)
	defer release()
	conn, err := c.connected(ctx)
	if err == nil && conn.changed[name] {
		err = errors.New("the server was started again and describes the tool differently now")
	}
	var result *mcp.CallToolResult
	if err == nil {
		params := &mcp.CallToolParams{Name: name, Arguments: arguments}
		result, err = await(ctx, func() (*mcp.CallToolResult, error) { return conn.session.CallTool(ctx, params) })
		conn.lost.CompareAndSwap(false, isLost(err))
	}
	switch {
	case err == nil:
		return result, nil
	case c.closing.Err() != nil:
		return nil, errClosed
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, err
}

// isLost reports whether a call failed since its session has ended.
func isLost(err error) bool {
	return errors.Is(err, mcp.ErrConnectionClosed) || errors.Is(err, mcp.ErrSessionMissing) || errors.Is(err, io.EOF)
}

// answer turns a result into what is recorded, or refuses it.
func (o *Options) answer(result *mcp.CallToolResult) (answer, error) {
	if result.NeedsInput() {
		return answer{}, errors.New("the server asks for input, which this client does not give")
	}
	output, err := o.output(result)
	if err != nil {
		return answer{}, err
	}
	if most := cmp.Or(o.MaxOutputBytes, defaultMaxOutputBytes); len(output) > most {
		return answer{}, fmt.Errorf("%w: the result has %d bytes, at most %d are allowed", tool.ErrLimit, len(output), most)
	}
	raw, err := canon.FromJSON(output)
	if err != nil {
		return answer{}, fmt.Errorf("the result cannot be recorded: %w", err)
	}
	return answer{Output: raw, IsError: result.IsError}, nil
}

// output chooses the shape of a result.
func (o *Options) output(result *mcp.CallToolResult) (json.RawMessage, error) {
	if result.Content == nil {
		result.Content = []mcp.Content{} // and not null
	}
	blocks, err := json.Marshal(map[string]any{"content": result.Content})
	if err != nil {
		return nil, err
	}
	var read content
	if err := json.Unmarshal(blocks, &read); err != nil {
		return nil, err
	}
	switch {
	case result.IsError:
		return blocks, nil
	case o.TextOnly:
		return onlyText(read, result.StructuredContent != nil)
	case result.StructuredContent != nil:
		return structured(result.StructuredContent, read)
	}
	return blocks, nil
}

// onlyText refuses what would be lost.
func onlyText(read content, alsoStructured bool) (json.RawMessage, error) {
	for _, block := range read.Content {
		if block.Type != "text" {
			return nil, fmt.Errorf("the result has content of type %q, and only text is wanted", block.Type)
		}
	}
	if alsoStructured && len(read.Content) == 0 {
		return nil, errors.New("the result has structured content and no text, and only text is wanted")
	}
	return json.Marshal(read.text())
}

// structured returns the structured content, in the words of a text that is the
// same document if there is one, see the comment of the package.
func structured(value any, read content) (json.RawMessage, error) {
	for _, block := range read.Content {
		var same any
		if json.Unmarshal([]byte(block.Text), &same) != nil || !reflect.DeepEqual(same, value) {
			continue
		}
		if exact, err := canon.JSON([]byte(block.Text)); err == nil {
			return exact, nil
		}
	}
	return json.Marshal(value)
}
