package mcpsrv

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// lists are the methods that list what other servers have, with the member of the result.
var lists = map[string]string{"resources/list": "resources", "resources/templates/list": "resourceTemplates", "prompts/list": "prompts"}

// passing answers requests for resources and prompts with other servers' answers, as they wrote
// them. Reading one is a recorded call.
func passing(tools Tools, from Changing, log *slog.Logger) mcp.Middleware {
	reads := map[string]mcp.ToolHandler{}
	for _, method := range []string{"resources/read", "prompts/get"} {
		reads[method] = asking(calling(tools, Tool{Name: method, Remote: true}, method, false, log))
	}
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			what, _, _ := strings.Cut(method, "/")
			read, member := reads[method], lists[method]
			if read == nil && member == "" || !from.Offers(what) {
				return next(ctx, method, r)
			}
			session, _ := r.GetSession().(*mcp.ServerSession)
			ours := map[string]any{}
			if client := session.InitializeParams(); client != nil && client.ProtocolVersion >= sessionless {
				if ours["resultType"] = "complete"; method != "prompts/get" {
					ours["cacheScope"], ours["ttlMs"] = "private", 0
				}
			}
			if read == nil {
				answer, err := exactJSON(map[string]any{member: append([]json.RawMessage{}, from.Items(ctx, method)...)})
				return wholeResult{&mcp.CallToolResult{}, ours, answer}, err
			}
			asks := &mcp.CallToolParamsRaw{} // the common part of the parameters of all requests
			var params map[string]json.RawMessage
			doc, err := json.Marshal(r.GetParams())
			if err = errors.Join(err, json.Unmarshal(doc, asks), json.Unmarshal(doc, &params)); err != nil {
				return nil, err
			}
			for _, name := range []string{"_meta", "inputResponses", "requestState"} {
				delete(params, name)
			}
			asks.Arguments, _ = exactJSON(params) // they were read as JSON
			result, err := read(ctx, &mcp.CallToolRequest{Session: session, Params: asks})
			if err != nil {
				return nil, err
			}
			answer, answered := result.Meta[exactKey].(json.RawMessage)
			delete(result.Meta, exactKey)
			if result.InputRequests != nil { // a question to the user
				ours["resultType"] = "input_required"
				answer, err = json.Marshal(result)
			} else if !answered {
				data, _ := json.Marshal(result.Meta)
				said, _ := result.Content[0].(*mcp.TextContent) // as failed makes it
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: said.Text, Data: data}
			}
			return wholeResult{result, ours, answer}, err
		}
	}
}
