package tool_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/runtime/tool"
)

func withVariables(t *testing.T, variables map[string]any) context.Context {
	t.Helper()
	ctx, err := tool.WithVariables(t.Context(), variables)
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

func TestGetVariable(t *testing.T) {
	type user struct {
		Name string `json:"name"`
	}
	ctx := withVariables(t, map[string]any{
		"tenant": "a", "count": 10, "big": uint64(1<<64 - 1), "ratio": 1.5, "on": true,
		"user": user{"Ada"}, "tags": []string{"x", "y"}, "null": nil,
	})
	check(t, ctx, "tenant", "a", true)
	check(t, ctx, "count", 10, true)
	check(t, ctx, "count", 10.0, true)
	check(t, ctx, "big", uint64(1<<64-1), true)
	check(t, ctx, "ratio", 1.5, true)
	check(t, ctx, "on", true, true)
	check(t, ctx, "user", user{"Ada"}, true)
	check(t, ctx, "tags", []string{"x", "y"}, true)
	check(t, ctx, "user", map[string]any{"name": "Ada"}, true)
	check(t, ctx, "count", "", false)
	check(t, ctx, "ratio", 0, false)
	check(t, ctx, "big", int64(0), false)
	check(t, ctx, "user", []string(nil), false)
	check(t, ctx, "null", "", false)
	check(t, ctx, "none", "", false)
	check(t, t.Context(), "tenant", "", false)
}

func check[T any](t *testing.T, ctx context.Context, key string, want T, wantOK bool) {
	t.Helper()
	got, ok := tool.GetVariable[T](ctx, key)
	if diff := cmp.Diff(want, got); ok != wantOK || diff != "" {
		t.Errorf("%s as %T: %v\n%s", key, want, ok, diff)
	}
	if !ok {
		defer func() {
			if text, _ := recover().(string); !strings.HasPrefix(text, `tool: variable "`+key+`": is n`) {
				t.Errorf("MustGetVariable panicked with %q", text)
			}
		}()
		tool.MustGetVariable[T](ctx, key)
	}
}

func TestGetVariableOr(t *testing.T) {
	ctx := withVariables(t, map[string]any{"max": 3})
	if got := tool.GetVariableOr(ctx, "max", 10); got != 3 {
		t.Errorf("got %d", got)
	}
	if got := tool.GetVariableOr(ctx, "min", 10); got != 10 {
		t.Errorf("got %d", got)
	}
}

func TestVariablesAreCopies(t *testing.T) {
	inner := map[string]any{"x": "old"}
	ctx := withVariables(t, map[string]any{"inner": inner})
	inner["x"] = "new"
	tool.GetVariables(ctx)["inner"].(map[string]any)["x"] = "changed"
	copy(tool.VariablesJSON(ctx), "garbage")
	if diff := cmp.Diff(map[string]any{"inner": map[string]any{"x": "old"}}, tool.GetVariables(ctx)); diff != "" {
		t.Error(diff)
	}
}

func TestGetRunContext(t *testing.T) {
	ctx := t.Context()
	if got, ok := tool.GetRunContext(ctx); ok || got.Variables == nil {
		t.Errorf("outside of a run: %+v, %v", got, ok)
	}
	ctx = tool.WithRunID(tool.WithSessionID(withVariables(t, map[string]any{"a": 1}), "session"), "run")
	want := tool.RunContext{RunID: "run", SessionID: "session", Variables: map[string]any{"a": 1.0}}
	got, ok := tool.GetRunContext(ctx)
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Error(diff)
	}
	if tool.GetRunID(ctx) != "run" || tool.GetSessionID(ctx) != "session" {
		t.Errorf("run %q, session %q", tool.GetRunID(ctx), tool.GetSessionID(ctx))
	}
	inner := tool.WithRunID(ctx, "inner")
	if tool.GetRunID(inner) != "inner" || tool.GetSessionID(inner) != "session" || tool.GetVariableOr(inner, "a", 0) != 1 {
		t.Error("a run within a run lost what it had")
	}
}

func TestInvalidRunVariables(t *testing.T) {
	for name, variables := range map[string]map[string]any{
		"a function": {"f": func() {}},
		"no UTF-8":   {"\xff": make(chan int)},
	} {
		if _, err := tool.WithVariables(t.Context(), variables); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	for _, doc := range []string{`[]`, `null`, `{`, `{"a":1,"a":2}`} {
		if _, err := tool.WithVariablesJSON(t.Context(), []byte(doc)); err == nil {
			t.Errorf("%s was accepted", doc)
		}
	}
	outer := withVariables(t, map[string]any{"a": 1})
	if ctx, err := tool.WithVariables(outer, nil); err != nil || tool.VariablesJSON(ctx) != nil || len(tool.GetVariables(ctx)) != 0 {
		t.Errorf("no variables: %v", err)
	}
}
