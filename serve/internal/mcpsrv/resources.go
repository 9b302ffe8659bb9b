package mcpsrv

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/display"
)

// listings are the methods that list what other servers have, with the member of the result.
var listings = map[string]string{"resources/list": "resources", "resources/templates/list": "resourceTemplates", "prompts/list": "prompts"}

// passing passes on what is for other servers, and their answers, as they wrote them. Reading a
// resource or a prompt is a recorded call. Presented returns the tools that are presented now.
func passing(v View, presented func() []Tool, log *slog.Logger) mcp.Middleware {
	reads := map[string]mcp.ToolHandler{}
	for _, method := range []string{"resources/read", "prompts/get"} {
		reads[method] = asking(v, calling(v, Tool{Name: method, Remote: true}, method, false, log))
	}
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			what, _, _ := strings.Cut(method, "/")
			read, member := reads[method], listings[method]
			session, _ := r.GetSession().(*mcp.ServerSession)
			ours := map[string]any{}
			if isSessionless(session) {
				if ours["resultType"] = "complete"; method != "prompts/get" {
					ours["cacheScope"], ours["ttlMs"] = "private", 0
				}
			}
			switch {
			case method == "tools/list":
				return listed(ctx, presented(), next, r, ours["resultType"] != nil)
			case method == "notifications/roots/list_changed":
				v.mirror.Notify(ctx, method, paramsOf(r))
				return next(ctx, method, r)
			case method == "logging/setLevel": // this server has logs, too
				_, _ = v.mirror.Request(ctx, method, paramsOf(r))
				return next(ctx, method, r)
			case method == "completion/complete" || method == "resources/subscribe" || method == "resources/unsubscribe":
				answer, err := v.mirror.Request(ctx, method, paramsOf(r))
				return wholeResult{&mcp.CallToolResult{}, ours, canon.Join(canon.Split(answer))}, err
			case read == nil && member == "" || !v.mirror.Offers(what):
				return next(ctx, method, r)
			case read == nil:
				answer, err := display.JSON(map[string]any{member: append([]json.RawMessage{}, v.mirror.Items(ctx, method)...)}, "")
				return wholeResult{&mcp.CallToolResult{}, ours, answer}, err
			}
			return reading(ctx, read, session, r.GetParams(), ours)
		}
	}
}

// reading sends another server a request of a method that is recorded, as the client wrote it.
func reading(ctx context.Context, read mcp.ToolHandler, session *mcp.ServerSession, p mcp.Params, ours map[string]any) (mcp.Result, error) {
	asks := &mcp.CallToolParamsRaw{Meta: p.GetMeta()}
	text, _ := asks.Meta[paramsKey].(string)
	params := canon.Split(json.RawMessage(text))
	_ = json.Unmarshal(params["requestState"], &asks.RequestState) // no call waits for another value
	for _, name := range []string{"_meta", "inputResponses", "requestState"} {
		if name != "inputResponses" || params["taskId"] == nil {
			delete(params, name)
		}
	}
	asks.Arguments = canon.Join(params)
	result, err := read(ctx, &mcp.CallToolRequest{Session: session, Params: asks})
	if err != nil {
		return nil, err
	}
	answer, answered := result.Meta[exactKey].(json.RawMessage)
	delete(result.Meta, exactKey)
	if question, ok := result.Meta[asksKey].(json.RawMessage); ok {
		return rawResult{result, question}, nil
	}
	if !answered {
		data, _ := json.Marshal(result.Meta)
		said, _ := result.Content[0].(*mcp.TextContent) // as failed makes it
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: said.Text, Data: data}
	}
	return wholeResult{result, ours, answer}, nil
}

// listed lists the tools: those of this server, and then those of others as they describe them.
func listed(ctx context.Context, tools []Tool, next mcp.MethodHandler, r mcp.Request, typed bool) (mcp.Result, error) {
	ours, err := next(ctx, "tools/list", r)
	list, ok := ours.(*mcp.ListToolsResult)
	if err != nil || !ok {
		return ours, err
	}
	result, err := membersOf(list)
	if err != nil {
		return nil, err
	}
	if typed { // which the SDK adds to its own results
		result["resultType"] = canon.Quote("complete")
	}
	var presented, all []json.RawMessage
	_ = json.Unmarshal(result["tools"], &presented) // it was just made
	shown := map[string]bool{}
	for i, t := range list.Tools {
		shown[t.Name] = true
		if !slices.ContainsFunc(tools, func(other Tool) bool { return other.Name == t.Name && other.Exact != nil }) {
			all = append(all, presented[i])
		}
	}
	for _, t := range tools {
		if t.Exact != nil && shown[t.Name] {
			all = append(all, t.Exact)
		}
	}
	result["tools"], err = display.JSON(all, "")
	return rawResult{list, canon.Join(result)}, err
}

// rawResult is a result that is sent as it was written.
type rawResult struct {
	mcp.Result
	doc json.RawMessage
}

// MarshalJSON implements [json.Marshaler].
func (r rawResult) MarshalJSON() ([]byte, error) { return r.doc, nil }
