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
	output, err = json.Marshal(results[0].Interface())
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	return output, nil
}
