package mcpsrv

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/runtime/tool"
)

// Lasting is implemented by [Tools] whose calls can outlive their requests, as tasks of the protocol.
// The id of a task is that of its run.
type Lasting interface {
	// Begin makes a run of a call as [Tools] do, and returns its id once the log has the run, which does
	// not end with ctx. The id is empty for a call that makes no run.
	Begin(ctx context.Context, c Call) (runID string, err error)

	// Outcome returns the state of a run when it has ended, or after a time, and goes on with a run whose
	// program has ended before it. With a negative time it only looks. The error is [ErrNoTask] if the
	// client has no such run.
	Outcome(ctx context.Context, runID string, most time.Duration) (Outcome, error)

	// Recent returns runs of the client, the newest first, of which some are no tasks.
	Recent(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error)

	// Stop cancels a run. If it has ended, nothing happens.
	Stop(ctx context.Context, runID string) error
}

// ErrNoTask means that a client has no task of an id.
var ErrNoTask = errors.New("there is no such task")

// Outcome is the state of a run of one call, and its end if it has ended.
type Outcome struct {
	span.Document
	End Result
}

// The extension with tasks in versions without sessions, and the member that relates a message to a
// task in the versions before.
const (
	tasksExtension = "io.modelcontextprotocol/tasks"
	relatedTask    = "io.modelcontextprotocol/related-task"
)

const (
	soon         = time.Second     // a call that ends sooner does not become a task, where the server decides
	pollInterval = time.Second     // that clients are told
	taskWait     = 5 * time.Second // for a cancelled run to end
	taskPage     = 20              // runs in one answer
)

// tasks are the tasks of one client.
type tasks struct {
	view  View
	tools Lasting
	log   *slog.Logger

	mu    sync.Mutex
	asked map[string]map[string]question // unanswered, by task and key; guarded by mu, and so are the next two
	last  int                            // key
	made  map[string]string              // the tool of each task that another server made, by its id
}

// lasting returns a view whose calls can become tasks, if its tools allow that.
func (v View) lasting(log *slog.Logger) View {
	if tools, ok := v.Tools.(Lasting); ok {
		v.tasks = &tasks{tools: tools, log: log, asked: map[string]map[string]question{}, made: map[string]string{}}
		v.tasks.view = v
	}
	return v
}

// taskParams are the params of all methods of tasks.
type taskParams struct {
	mcp.ParamsBase
	TaskID         string                     `json:"taskId"`
	Cursor         string                     `json:"cursor"`
	InputResponses map[string]json.RawMessage `json:"inputResponses"`
}

// serve serves tasks: those of the versions of the protocol with sessions, for which a client asks,
// and those of the extension to the later ones, with which the server decides.
func (t *tasks) serve(server *mcp.Server) {
	server.AddReceivingMiddleware(t.offering, t.view.whole)
	for method, handle := range map[string]func(context.Context, bool, *taskParams) (members, error){
		"tasks/get": t.get, "tasks/cancel": t.cancel, "tasks/result": t.result, "tasks/list": t.list, "tasks/update": t.update,
	} {
		_ = mcp.AddReceivingCustomMethod(server, method, func(ctx context.Context, s *mcp.ServerSession, p *taskParams) (rawResult, error) {
			decides := isSessionless(s)
			if method == "tasks/update" && !decides || decides && (method == "tasks/result" || method == "tasks/list") {
				return rawResult{}, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}
			}
			answer, err := handle(ctx, decides, p)
			if errors.Is(err, ErrNoTask) {
				answer, err = t.theirs(ctx, s, method, p)
			}
			_, said := errors.AsType[*jsonrpc.Error](err)
			switch {
			case err == nil && decides:
				answer["resultType"] = canon.Quote("complete")
			case err != nil && !said && ctx.Err() == nil:
				t.log.ErrorContext(ctx, "mcpsrv: task failed", "method", method, "error", err)
				err = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: ErrHost.Error()}
			}
			return rawResult{&mcp.CallToolResult{}, canon.Join(answer)}, err
		}) // which fails for methods of the SDK alone
	}
}

// offering adds tasks to the greeting, and to the tools that can be asked for one.
func (t *tasks) offering(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, r)
		session, ok := r.GetSession().(*mcp.ServerSession)
		if err != nil || !ok || method != "initialize" && method != "server/discover" && (method != "tools/list" || isSessionless(session)) {
			return result, err
		}
		all, err := membersOf(result)
		if err != nil {
			return nil, err
		}
		switch method {
		case "initialize":
			set(all, json.RawMessage(`{"cancel":{},"list":{},"requests":{"tools":{"call":{}}}}`), "capabilities", "tasks")
		case "server/discover":
			set(all, json.RawMessage("{}"), "capabilities", "extensions", tasksExtension)
			all["resultType"] = canon.Quote("complete")
		default:
			tools, err := t.view.Tools.List(ctx)
			if err != nil {
				return nil, err
			}
			var listed []json.RawMessage
			_ = json.Unmarshal(all["tools"], &listed) // it was just made
			for i, one := range listed {
				said := canon.Split(one)
				if slices.ContainsFunc(tools, func(of Tool) bool {
					return of.Exact == nil && !of.Brief && string(canon.Quote(of.Name)) == string(said["name"])
				}) {
					said["execution"] = json.RawMessage(`{"taskSupport":"optional"}`)
					listed[i] = canon.Join(said)
				}
			}
			if all["tools"], err = display.JSON(listed, ""); err != nil {
				return nil, err
			}
		}
		return rawResult{result, canon.Join(all)}, nil
	}
}

// ownTasks reports whether another server makes tasks of the calls of its tool.
func (t Tool) ownTasks() bool {
	support := string(canon.Split(canon.Split(t.Exact)["execution"])["taskSupport"])
	return support == `"optional"` || support == `"required"`
}

// lasting returns the handler of a tool whose calls can become tasks.
func (t *tasks) lasting(of Tool, structured bool, call mcp.ToolHandler) mcp.ToolHandler {
	return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		asks, decides := canon.Split(writtenBy(ctx, r)), isSessionless(r.Session)
		wished := bytes.HasPrefix(asks["task"], []byte("{")) && !of.ownTasks()
		if decides {
			able := canon.Split(canon.Split(asks["_meta"])[mcp.MetaKeyClientCapabilities])
			wished = canon.Split(able["extensions"])[tasksExtension] != nil && asks["requestState"] == nil
		}
		if !wished || of.Brief {
			result, err := call(ctx, r)
			if err == nil {
				t.note(of, result)
			}
			return result, err
		}
		from, id, begun := ctx, "", make(chan struct{})
		if t.view.life != nil { // what the run sends the client later belongs to no request
			from = t.view.life
		}
		from = withAsker(from, takesQuestions(r.Session), func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
			<-begun
			return t.ask(ctx, r.Session, id, method, params)
		})
		from, c, err := callOf(from, t.view, r, of)
		if err != nil {
			return nil, err
		}
		if decides { // and a task has no progress
			c.Progress = nil
		}
		if c.Through != nil {
			delete(c.Through.Other, "task")
			if decides {
				c.Through.Hear = nil
			}
		}
		id, err = t.tools.Begin(from, c)
		close(begun)
		if err != nil {
			return refusal(ctx, t.log, of.Name, err)
		}
		patience := time.Duration(0)
		if decides {
			patience = soon
		}
		o, err := t.tools.Outcome(ctx, id, patience)
		if err != nil {
			return refusal(ctx, t.log, of.Name, err)
		}
		if decides && o.Status != eventlog.StatusOpen {
			result, err := o.End.present(structured)
			if err == nil {
				t.note(of, result)
			}
			return result, err
		}
		handle := t.state(o, decides)
		if decides {
			handle["resultType"] = canon.Quote("task")
		} else {
			handle = members{"task": canon.Join(handle)}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{}, Meta: mcp.Meta{asksKey: json.RawMessage(canon.Join(handle))}}, nil
	}
}

// note notes the tool of a task that another server made.
func (t *tasks) note(of Tool, result *mcp.CallToolResult) {
	answer, _ := result.Meta[exactKey].(json.RawMessage)
	said := canon.Split(answer)
	if inner := canon.Split(said["task"]); len(inner) > 0 { // in versions with sessions
		said = inner
	}
	var id string
	if json.Unmarshal(said["taskId"], &id) == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		_, t.made[id], _ = strings.Cut(of.Name, "_") // no name of a server has an underscore
	}
}

// state describes a task.
func (t *tasks) state(o Outcome, decides bool) members {
	status := "working"
	t.mu.Lock()
	if len(t.asked[o.RunID]) > 0 {
		status = "input_required"
	}
	t.mu.Unlock()
	switch {
	case o.Status == eventlog.StatusCompleted, o.Status == eventlog.StatusFailed && decides && len(o.End.Refused) == 0:
		status = "completed"
	case o.Status != eventlog.StatusOpen:
		status = o.Status
	}
	changed := o.StartedAt.Add(time.Duration(o.DurationMs) * time.Millisecond)
	said := members{
		"taskId": canon.Quote(o.RunID), "status": canon.Quote(status), "statusMessage": canon.Quote(about(o)),
		"createdAt": canon.Quote(o.StartedAt.UTC().Format(time.RFC3339Nano)), "lastUpdatedAt": canon.Quote(changed.UTC().Format(time.RFC3339Nano)),
	}
	ttl, poll := "ttl", "pollInterval"
	if decides {
		ttl, poll = "ttlMs", "pollIntervalMs"
	}
	said[ttl], said[poll] = json.RawMessage("null"), fmt.Append(nil, pollInterval.Milliseconds())
	return said
}

// about says in words how far a task is.
func about(o Outcome) string {
	switch {
	case o.Waiting:
		return o.Tool + " waits for its turn"
	case o.Error != nil:
		return oneLine(o.Tool + ": " + o.Error.Message)
	}
	return fmt.Sprintf("%s: %s, %d events", o.Tool, o.Status, o.LastSeq)
}

// end returns the result of a task that has ended, or the error of the protocol instead.
func (t *tasks) end(ctx context.Context, o Outcome) (members, error) {
	tools, err := t.view.Tools.List(ctx)
	if err != nil {
		return nil, err
	}
	structured := slices.ContainsFunc(tools, func(of Tool) bool { return of.Name == o.Tool && tool.IsObjectSchema(of.OutputSchema) })
	result, err := o.End.present(structured)
	if err != nil {
		return nil, err
	}
	var doc []byte
	if answer, ok := result.Meta[exactKey].(json.RawMessage); ok {
		delete(result.Meta, exactKey)
		doc, err = wholeResult{result, result, answer}.MarshalJSON()
	} else {
		doc, err = json.Marshal(result)
	}
	return canon.Split(doc), err
}

// get serves tasks/get.
func (t *tasks) get(ctx context.Context, decides bool, p *taskParams) (members, error) {
	o, err := t.tools.Outcome(ctx, p.TaskID, 0)
	if err != nil {
		return nil, err
	}
	said := t.state(o, decides)
	switch string(said["status"]) {
	case `"input_required"`:
		if decides {
			asked := members{}
			t.mu.Lock()
			for key, q := range t.asked[p.TaskID] {
				asked[key] = q.request()
			}
			t.mu.Unlock()
			said["inputRequests"] = canon.Join(asked)
		}
	case `"completed"`, `"failed"`:
		if !decides {
			break
		}
		result, err := t.end(ctx, o)
		if failure, ok := errors.AsType[*jsonrpc.Error](err); ok {
			doc, _ := json.Marshal(failure) // it has valid JSON
			said["error"] = doc
		} else if err != nil {
			return nil, err
		} else {
			said["result"] = canon.Join(result)
		}
	}
	return said, nil
}

// result serves tasks/result, which waits for the end.
func (t *tasks) result(ctx context.Context, _ bool, p *taskParams) (members, error) {
	for {
		o, err := t.tools.Outcome(ctx, p.TaskID, time.Minute)
		switch {
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case o.Status == eventlog.StatusOpen:
			continue
		}
		result, err := t.end(ctx, o)
		if err != nil {
			return nil, err
		}
		return set(result, canon.Join(members{"taskId": canon.Quote(o.RunID)}), "_meta", relatedTask), nil
	}
}

// list serves tasks/list. A cursor is the number of tasks before.
func (t *tasks) list(ctx context.Context, _ bool, p *taskParams) (members, error) {
	skip, err := strconv.Atoi(cmp.Or(p.Cursor, "0"))
	if err != nil || skip < 0 {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is not one of this server"}
	}
	page, err := t.tools.Recent(ctx, eventlog.RunPageOptions{Offset: skip, Limit: taskPage})
	if err != nil {
		return nil, err
	}
	all := []json.RawMessage{}
	if t.view.mirror != nil && skip == 0 {
		asked, _ := p.Meta[paramsKey].(string)
		theirs, _ := t.view.mirror.Request(ctx, "tasks/list", json.RawMessage(cmp.Or(asked, "{}"))) // of the first server that answers
		_ = json.Unmarshal(canon.Split(theirs)["tasks"], &all)
	}
	for _, run := range page.Runs {
		switch o, err := t.tools.Outcome(ctx, run.RunID, -1); {
		case err == nil:
			all = append(all, canon.Join(t.state(o, false)))
		case !errors.Is(err, ErrNoTask):
			return nil, err
		}
	}
	listed, err := display.JSON(all, "")
	said := members{"tasks": listed}
	if skip += len(page.Runs); skip < page.TotalMatching {
		said["nextCursor"] = canon.Quote(strconv.Itoa(skip))
	}
	return said, err
}

// cancel serves tasks/cancel.
func (t *tasks) cancel(ctx context.Context, decides bool, p *taskParams) (members, error) {
	o, err := t.tools.Outcome(ctx, p.TaskID, 0)
	if err == nil && o.Status != eventlog.StatusOpen && !decides {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the task has ended: it is " + o.Status}
	}
	if err == nil {
		err = t.tools.Stop(ctx, p.TaskID)
	}
	if err != nil || decides {
		return members{}, err
	}
	o, err = t.tools.Outcome(ctx, p.TaskID, taskWait)
	return t.state(o, false), err
}

// update serves tasks/update: the answers to questions.
func (t *tasks) update(ctx context.Context, _ bool, p *taskParams) (members, error) {
	if _, err := t.tools.Outcome(ctx, p.TaskID, 0); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, answer := range p.InputResponses {
		if q, ok := t.asked[p.TaskID][key]; ok {
			delete(t.asked[p.TaskID], key)
			q.answer <- answer // the only one
		}
	}
	return members{}, nil
}

// ask asks the client what a task asks: with a request of this server, or with the state of the task.
func (t *tasks) ask(ctx context.Context, s *mcp.ServerSession, id, method string, params json.RawMessage) (json.RawMessage, error) {
	q := question{method, params, make(chan json.RawMessage, 1)}
	t.mu.Lock()
	t.last++
	key := strconv.Itoa(t.last)
	if t.asked[id] == nil {
		t.asked[id] = map[string]question{}
	}
	t.asked[id][key] = q
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if delete(t.asked[id], key); len(t.asked[id]) == 0 {
			delete(t.asked, id)
		}
	}()
	if !isSessionless(s) {
		params = canon.Join(set(canon.Split(params), canon.Join(members{"taskId": canon.Quote(id)}), "_meta", relatedTask))
		return t.view.wire.ask(ctx, s, method, params)
	}
	return q.wait(ctx, time.After(answerTime))
}

// theirs passes on what is said of a task of another server. What such a task ends with, and its
// questions, are recorded.
func (t *tasks) theirs(ctx context.Context, s *mcp.ServerSession, method string, p *taskParams) (members, error) {
	mirror := t.view.mirror
	if mirror == nil || !mirror.Offers("tasks") {
		return nil, noTask(p.TaskID)
	}
	params, _ := p.Meta[paramsKey].(string)
	if method == "tasks/get" || method == "tasks/cancel" {
		answer, err := mirror.Request(ctx, method, json.RawMessage(params))
		said := canon.Split(answer)
		if errors.Is(err, mcptool.ErrNoMethod) {
			err = noTask(p.TaskID)
		}
		if err != nil || said["result"] == nil && said["error"] == nil && said["inputRequests"] == nil {
			return said, err
		}
	}
	t.mu.Lock()
	of := Tool{Name: method, Title: t.made[p.TaskID], Remote: true}
	t.mu.Unlock()
	read := asking(t.view, calling(t.view, of, method, false, t.log))
	result, err := reading(ctx, read, s, p, map[string]any{})
	if err != nil {
		return nil, err
	}
	return membersOf(result)
}

func noTask(id string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("there is no task %.100q", display.WithoutInvisible(id))}
}
