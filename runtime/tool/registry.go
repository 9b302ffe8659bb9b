package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// Registry holds tools made from plain Go functions. The zero value is empty. It is safe
// for concurrent use.
//
// Such a function has no context, so it can only compute. Make tools that reach the world
// with [Typed].
type Registry struct {
	mu     sync.RWMutex
	byName map[string]*reflected // guarded by mu
	order  []Tool                // guarded by mu; as they were registered
}

// ErrUnknownTool is wrapped by the error of [Registry.Execute] for a name that
// is not registered.
var ErrUnknownTool = errors.New("tool: unknown tool")

// Register adds the tool that calls fn: a function of exactly one argument, a struct or a
// pointer to a struct, whose result is a value, or a value and an error. The schema follows
// from the struct as in [Typed]. It fails for other functions, and if the name is empty or
// taken.
func (r *Registry) Register(name, description string, fn any) error {
	t, err := reflectTool(name, description, fn)
	if err != nil {
		return fmt.Errorf("tool: register %q: %w", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.byName[name]; taken || name == "" {
		return fmt.Errorf("tool: register %q: the name is empty or taken", name)
	}
	if r.byName == nil {
		r.byName = map[string]*reflected{}
	}
	r.byName[name] = t
	r.order = append(r.order, t)
	return nil
}

// GetAllTools returns the tools in the order of their registration. It is never
// nil.
func (r *Registry) GetAllTools() []Tool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return append([]Tool{}, r.order...)
}

// Execute calls the tool of that name with a JSON document as its arguments. A string
// result is returned unchanged, any other as JSON. The call is not part of a run and not
// recorded; within a run, pass the tools to step.NewRegistry.
func (r *Registry) Execute(name, argsJSON string) (string, error) {
	r.mu.RLock()
	t := r.byName[name]
	r.mu.RUnlock()
	if t == nil {
		return "", fmt.Errorf("%w: %q", ErrUnknownTool, name)
	}
	out, err := t.Execute(context.Background(), json.RawMessage(argsJSON))
	if err != nil {
		return "", err
	}
	var text string
	if json.Unmarshal(out, &text) == nil && string(out) != "null" {
		return text, nil
	}
	return string(out), nil
}

// reflected is a tool called by reflection.
type reflected struct {
	described
	fn      reflect.Value
	args    reflect.Type // the struct
	pointer bool         // fn takes a pointer to it
}

// reflectTool makes a tool from a function.
func reflectTool(name, description string, fn any) (*reflected, error) {
	v := reflect.ValueOf(fn)
	if v.Kind() != reflect.Func || v.IsNil() {
		return nil, fmt.Errorf("%T is not a function", fn)
	}
	switch t := v.Type(); {
	case t.NumIn() != 1 || t.IsVariadic():
		return nil, fmt.Errorf("%v does not have exactly one argument", t)
	case !slices.Contains([]int{1, 2}, t.NumOut()) || t.Out(0) == reflect.TypeFor[error](),
		t.NumOut() == 2 && t.Out(1) != reflect.TypeFor[error]():
		return nil, fmt.Errorf("%v returns neither a value nor a value and an error", t)
	}
	args := v.Type().In(0)
	pointer := args.Kind() == reflect.Pointer
	if pointer {
		args = args.Elem()
	}
	in, err := structInput(args)
	if err != nil {
		return nil, err
	}
	return &reflected{described{name, description, in}, v, args, pointer}, nil
}

func (t *reflected) Execute(_ context.Context, input json.RawMessage) (output json.RawMessage, err error) {
	defer Recover(&err)
	args := reflect.New(t.args)
	if err := t.input.decode(input, args.Interface()); err != nil {
		return nil, err
	}
	if !t.pointer {
		args = args.Elem()
	}
	results := t.fn.Call([]reflect.Value{args})
	if len(results) == 2 && !results[1].IsNil() {
		return nil, results[1].Interface().(error)
	}
	return written(results[0].Interface())
}

// written returns the result of a function as JSON.
func written(result any) (json.RawMessage, error) {
	output, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	return output, nil
}

// Typed returns the tool that calls fn. The schema of its input is derived from In, a
// struct, or struct{} for a tool without parameters; package internal/schema documents
// types and tags. It panics if In cannot be described to a model: if it is not a struct,
// contains maps, interfaces or itself, has two members of one name, or invalid tags.
//
// Execute refuses an input that does not match the schema, with an error that lists every
// mismatch, and does not call fn. Missing members get their defaults. A panic of fn is an
// error that wraps [ErrPanicked]. encoding/json marshals the result of fn.
func Typed[In, Out any](name, description string, fn func(context.Context, In) (Out, error)) Tool {
	in, err := structInput(reflect.TypeFor[In]())
	if err != nil {
		panic(fmt.Sprintf("tool: %q: input %v", name, err))
	}
	return &typed[In, Out]{described{name, description, in}, fn}
}

type typed[In, Out any] struct {
	described
	fn func(context.Context, In) (Out, error)
}

func (t *typed[In, Out]) Execute(ctx context.Context, input json.RawMessage) (output json.RawMessage, err error) {
	defer Recover(&err)
	var in In
	if err := t.input.decode(input, &in); err != nil {
		return nil, err
	}
	out, err := t.fn(ctx, in)
	if err != nil {
		return nil, err
	}
	return written(out)
}

// TextTool is a tool that describes its input with a [ToolSchema] and answers with text.
// [Adapt] makes a [Tool] of it. It suits structs with state: a connection, a key, a cache.
type TextTool interface {
	Name() string
	Description() string
	InputSchema() ToolSchema
	Execute(ctx context.Context, input json.RawMessage) (string, error)
}

// Adapt turns t into a Tool. Its result is the text, as a JSON string. It panics if t has
// no name or an invalid schema; it reads the schema once.
//
// Execute refuses an input that does not match the schema, with an error that lists every
// mismatch, and does not call t. Missing parameters get their defaults. A panic of t is an
// error that wraps [ErrPanicked].
func Adapt(t TextTool) Tool {
	return NewFuncTool(t.Name(), t.Description(), t.InputSchema(), t.Execute)
}

// NewFuncTool returns the tool that calls fn: [Adapt] for a function without state. It
// panics if fn is nil, and when Adapt does.
func NewFuncTool(name, description string, schema ToolSchema, fn func(ctx context.Context, input json.RawMessage) (string, error)) Tool {
	doc, err := schema.JSON()
	var in *input
	if err == nil {
		in, err = newInput(doc)
	}
	switch {
	case fn == nil:
		panic(fmt.Sprintf("tool: %q: the function is nil", name))
	case err != nil:
		panic(fmt.Sprintf("tool: %q: schema: %v", name, err))
	case name == "":
		panic("tool: a tool has no name")
	}
	return &adapted{described{name, description, in}, fn}
}

type adapted struct {
	described
	fn func(context.Context, json.RawMessage) (string, error)
}

func (a *adapted) Execute(ctx context.Context, input json.RawMessage) (output json.RawMessage, err error) {
	defer Recover(&err)
	if input, err = a.input.read(input); err != nil {
		return nil, err
	}
	text, err := a.fn(ctx, input)
	if err != nil {
		return nil, err
	}
	return json.Marshal(text)
}
