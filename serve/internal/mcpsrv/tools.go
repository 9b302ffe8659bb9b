package mcpsrv

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/runtime/tool"
)

// The members that a result's _meta gets: the run of the call, also under the key of before the
// protocol gave keys a form, and its receipt.
const (
	runIDKey    = "io.github.starling-host/run_id"
	oldRunIDKey = "starling/run_id"
	receiptKey  = "io.github.starling-host/receipt"
)

// MaxLinks is how many files a result has links to.
const MaxLinks = 20

// IsOurs reports whether a member of a result's _meta is one that a host like this one adds.
func IsOurs(name string) bool {
	return slices.Contains([]string{runIDKey, oldRunIDKey, replayKey, receiptKey, innerKey}, name)
}

// callerKey is the member of a request's _meta with what the caller claims of itself, see
// [event.ParseClaims].
const callerKey = "io.github.starling-host/caller"

// innerKey is the member with those members that a server set.
const innerKey = "io.github.starling-host/inner"

// replayKey is the member with the command that replays the run.
const replayKey = "starling/replay"

// Bounds of a tenant tool's texts.
const (
	maxToolName    = 128      // bytes
	maxDescription = 4 << 10  // bytes; modules may say as much
	maxSchema      = 64 << 10 // bytes
	maxResult      = 1 << 20  // bytes of one result
	maxError       = 8 << 10  // bytes
	maxLogLines    = 1000     // of the log of a call; the run has all of it
)

// addTool presents a tool of a tenant. The error is the reason why it cannot be presented.
func addTool(server *mcp.Server, v View, t Tool, log *slog.Logger) (err error) {
	defer tool.Recover(&err) // the SDK panics at schemas that it does not take
	if err := CheckName(t.Name); err != nil {
		return err
	}
	switch {
	case t.Exact != nil:
	case len(t.InputSchema) > maxSchema || len(t.OutputSchema) > maxSchema:
		return fmt.Errorf("its schema has more than %d bytes", maxSchema)
	case !tool.IsObjectSchema(t.InputSchema):
		return errors.New(`its schema is not one of type "object"`)
	}
	open := !t.Closed
	presented := &mcp.Tool{
		Name: t.Name, Title: display.Clip(display.WithoutInvisible(t.Title), maxToolName), Description: display.Clip(display.WithoutInvisible(t.Description), maxDescription) + display.WithoutInvisible(t.Declarations), InputSchema: t.InputSchema,
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.Closed && !t.Changes, IdempotentHint: t.Idempotent, OpenWorldHint: &open},
	}
	if tool.IsObjectSchema(t.OutputSchema) {
		presented.OutputSchema = t.OutputSchema
	}
	if t.Exact != nil { // what is listed, see exactly
		presented = &mcp.Tool{Name: t.Name, InputSchema: json.RawMessage(`{"type":"object"}`)}
	}
	call := calling(v, t, "", presented.OutputSchema != nil, log)
	if v.wire != nil {
		call = asking(v, call)
	}
	if v.tasks != nil {
		call = v.tasks.lasting(t, presented.OutputSchema != nil, call)
	}
	server.AddTool(presented, call)
	return nil
}

// calling returns the handler for a tool, or for a method of another server.
func calling(v View, t Tool, method string, structured bool, log *slog.Logger) mcp.ToolHandler {
	return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, call, err := callOf(ctx, v, r, t)
		if err != nil {
			return nil, err
		}
		call.Method = method
		result, err := v.Tools.Call(ctx, call)
		sendLog(ctx, r.Session, t.Name, result.Log)
		if err != nil {
			return refusal(ctx, log, t.Name, err)
		}
		if client := r.Session.InitializeParams(); client != nil && client.ProtocolVersion < "2025-06-18" {
			result.Changed = nil // links came with that version
		}
		return result.present(structured)
	}
}

// callOf returns the call of a tool that a request asks for, and the context in which its run records
// the client.
func callOf(ctx context.Context, v View, r *mcp.CallToolRequest, t Tool) (context.Context, Call, error) {
	ticket, _ := ctx.Value(ticketKey{}).(string)
	ctx, err := callerOf(ctx, r, v.wire != nil)
	if err != nil {
		return nil, Call{}, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: callerKey + ", " + err.Error()}
	}
	call := Call{Name: t.Name, Arguments: arguments(r), Ticket: ticket, Progress: progressOf(ctx, r)}
	if v.wire != nil {
		call.Through = remoteCall(ctx, v.wire, r, t)
	}
	return ctx, call, nil
}

// refusal returns what a client is told of a call of which no run was made, or whose end is unavailable.
func refusal(ctx context.Context, log *slog.Logger, name string, err error) (*mcp.CallToolResult, error) {
	switch _, bad := errors.AsType[*tool.InputError](err); {
	case bad, errors.Is(err, ErrNoTool), errors.Is(err, ErrRefused), errors.Is(err, ErrBusy), errors.Is(err, ErrLost), errors.Is(err, ErrHost):
		return failed(err.Error()), nil
	case ctx.Err() != nil:
		return nil, ctx.Err() // there is no response
	}
	log.ErrorContext(ctx, "mcpsrv: call failed", "tool", name, "error", err)
	return failed(ErrHost.Error()), nil
}

// callerOf returns a context whose run records the client and its claims. Only the client of a local
// server has a session.
func callerOf(ctx context.Context, r *mcp.CallToolRequest, local bool) (context.Context, error) {
	var c event.Caller
	if claims, ok := r.Params.Meta[callerKey]; ok {
		doc, err := json.Marshal(claims)
		if err == nil {
			c, err = event.ParseClaims(doc)
		}
		if err != nil {
			return nil, err
		}
	}
	if client := r.ClientInfo(); client != nil {
		c.Client, c.Version = display.Clip(display.WithoutInvisible(client.Name), maxToolName), display.Clip(display.WithoutInvisible(client.Version), maxToolName)
	}
	if trace, ok := r.Params.Meta["traceparent"].(string); ok {
		c.TraceParent = display.Clip(display.WithoutInvisible(trace), maxToolName)
	}
	if local {
		c.Session = r.Session.ID()
	}
	return tool.WithCaller(ctx, c)
}

// remoteCall is a call of another server on behalf of a client.
func remoteCall(ctx context.Context, w *wire, r *mcp.CallToolRequest, t Tool) *mcptool.Call {
	said := canon.Split(paramsOf(r))
	c := &mcptool.Call{Meta: canon.Split(said["_meta"])}
	for _, ours := range []string{mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientInfo, mcp.MetaKeyClientCapabilities} { // of this connection
		delete(c.Meta, ours)
	}
	if !t.Remote { // it calls other tools, and its progress is its own
		delete(c.Meta, "progressToken")
	} else {
		c.Other = said
		for _, known := range []string{"name", "arguments", "_meta", "inputResponses", "requestState"} {
			delete(c.Other, known)
		}
	}
	after := context.WithoutCancel(ctx) // what the server says of a call that is being cancelled arrives, too
	c.Hear = func(method string, params json.RawMessage) { w.notify(after, r.Session, method, params) }
	if ask, ok := ctx.Value(askerKey{}).(asker); ok {
		c.Ask = func(ctx context.Context, tool, method string, params json.RawMessage) (json.RawMessage, error) {
			said := canon.Split(params)
			if strings.HasPrefix(tool, "tasks/") {
				tool = cmp.Or(t.Title, "that made this task")
			}
			var message string
			if method == "elicitation/create" && json.Unmarshal(said["message"], &message) == nil { // a server could speak as if it were the host
				said["message"] = canon.Quote("The server of the tool " + tool + " asks: " + message)
				params = canon.Join(said)
			}
			return ask(ctx, method, params)
		}
	}
	return c
}

// exactKey is the member of a result's _meta that holds another server's answer until it is
// sent.
const exactKey = "starling/exact"

// asksKey is the member with a question to the client instead, or with its task, which ends its
// request.
const asksKey = "starling/asks"

// whole sends another server's answer unchanged, with our additions to its _meta. The SDK's own
// type would lose unknown members.
func (v View) whole(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, r)
		if failure, ok := errors.AsType[*jsonrpc.Error](err); ok && v.wire != nil && failure.Code == jsonrpc.CodeMethodNotFound {
			doc, _ := json.Marshal(failure) // it has valid JSON
			return rawResult{&mcp.CallToolResult{}, canon.Join(members{refusedKey: doc})}, nil
		}
		if ours, ok := result.(*mcp.CallToolResult); ok && ours != nil {
			if answer, ok := ours.Meta[exactKey].(json.RawMessage); ok {
				delete(ours.Meta, exactKey)
				return wholeResult{ours, ours, answer}, err
			}
			if asks, ok := ours.Meta[asksKey].(json.RawMessage); ok {
				return rawResult{ours, asks}, err
			}
		}
		return result, err
	}
}

type wholeResult struct {
	mcp.Result
	ours   any // the members that this session has
	answer json.RawMessage
}

// MarshalJSON implements [json.Marshaler].
func (w wholeResult) MarshalJSON() ([]byte, error) {
	var members, ours, meta map[string]json.RawMessage
	doc, err := json.Marshal(w.ours)
	if err == nil {
		err = errors.Join(json.Unmarshal(doc, &ours), json.Unmarshal(w.answer, &members))
	}
	if err != nil {
		return nil, err
	}
	if members == nil { // the server answered with null
		members = map[string]json.RawMessage{}
	}
	task := string(members["resultType"]) == `"task"` // of the server, in place of a result
	if !task {
		delete(members, "resultType") // of another session, which may be of another version
	}
	for _, name := range []string{"resultType", "cacheScope"} {
		if ours[name] != nil && !task {
			members[name] = ours[name]
		}
	}
	for name, empty := range map[string]string{"content": "[]", "ttlMs": "0"} {
		if members[name] == nil && ours[name] != nil && members["task"] == nil && !task {
			members[name] = json.RawMessage(empty)
		}
	}
	_ = json.Unmarshal(members["_meta"], &meta) // odd values are replaced
	all := map[string]any{}
	maps.Copy(all, w.GetMeta())
	inner := map[string]json.RawMessage{} // of a host behind this one, whose members would look like ours
	for name, value := range meta {
		if IsOurs(name) {
			inner[name] = value
		} else {
			all[name] = value
		}
	}
	if len(inner) > 0 {
		all[innerKey] = inner
	}
	if len(all) > 0 {
		if members["_meta"], err = display.JSON(all, ""); err != nil {
			return nil, err
		}
	}
	return canon.Join(members), nil
}

// In a run with many effects the client receives the first ones, and then some of the others.
const (
	allProgress   = 100
	progressEvery = 100 * time.Millisecond
)

// progressOf returns a function that sends the progress of a call, or nil if the client has not
// requested it. The total is unknown. Failures to send a notification are ignored.
func progressOf(ctx context.Context, r *mcp.CallToolRequest) func(what string) {
	token := r.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	var count int
	var sent time.Time
	return func(what string) {
		count++
		if count > allProgress && time.Since(sent) < progressEvery {
			return
		}
		sent = time.Now()
		_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(count), Message: oneLine(what)})
	}
}

// sendLog sends what a tool has written, line by line, to a client that has set a level.
func sendLog(ctx context.Context, session *mcp.ServerSession, name, log string) {
	sent := 0
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if sent++; sent > maxLogLines {
			return
		}
		//lint:ignore SA1019 clients of the versions before still ask for logs
		_ = session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Logger: name, Data: oneLine(line)})
	}
}

var toolName = lazy.Regexp(`^[a-zA-Z0-9_.-]+$`)

// CheckName returns why a tool cannot have a name, or nil.
func CheckName(name string) error {
	switch {
	case len(name) > maxToolName || !toolName().MatchString(name):
		return fmt.Errorf("its name is not one of at most %d letters, digits, '_', '-' and '.'", maxToolName)
	case slices.ContainsFunc(logTools(), func(t tool.Tool) bool { return t.Name() == name }):
		return errors.New("its name is that of a tool over the log")
	}
	return nil
}

// arguments returns the client's arguments, or an empty object.
func arguments(r *mcp.CallToolRequest) json.RawMessage {
	if len(r.Params.Arguments) == 0 || string(r.Params.Arguments) == "null" {
		return json.RawMessage("{}")
	}
	return r.Params.Arguments
}

// present gives the end of a run the form of a result, or of an error of the protocol.
func (result Result) present(structured bool) (*mcp.CallToolResult, error) {
	failure, out, meta := &jsonrpc.Error{}, &mcp.CallToolResult{Content: []mcp.Content{}}, mcp.Meta{}
	switch {
	case result.Remote && len(result.Refused) > 0 && json.Unmarshal(result.Refused, failure) == nil:
		return nil, failure
	case result.Remote && len(result.Answer) > 0:
		meta[exactKey] = result.Answer
	case result.Error != "":
		out = failed(result.Error)
	case !result.Remote && len(result.Output) > maxResult:
		out = failed(fmt.Sprintf("the result has %d bytes, of which at most %d are passed on; all of it is in the run", len(result.Output), maxResult))
	default:
		output, text := json.RawMessage(display.PrintableJSON(result.Output)), ""
		if json.Unmarshal(output, &text) != nil { // a JSON string is shown as the text that it is
			text = string(output)
		}
		out.Content = []mcp.Content{&mcp.TextContent{Text: text}}
		if structured && bytes.HasPrefix(bytes.TrimSpace(output), []byte("{")) {
			out.StructuredContent = output
		}
		for _, path := range result.Changed {
			uri := url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(path), "/")}
			out.Content = append(out.Content, &mcp.ResourceLink{URI: uri.String(), Name: display.WithoutInvisible(filepath.Base(path))})
		}
		if result.Unwritten != "" {
			out.IsError, out.Content = true, append(out.Content, failed(result.Unwritten).Content...)
		}
	}
	if result.RunID != "" {
		meta[runIDKey], meta[oldRunIDKey] = result.RunID, result.RunID
	}
	if result.Receipt != nil {
		meta[receiptKey] = result.Receipt
	}
	if result.Replay != "" {
		meta[replayKey] = result.Replay
	}
	if len(meta) > 0 {
		out.Meta = meta
	}
	return out, nil
}

func failed(why string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: display.Clip(display.WithoutInvisible(why), maxError)}}}
}
