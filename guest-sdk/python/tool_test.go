package python_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling"

	"github.com/starling-host/starling/internal/treetest"
)

// write puts a tool.py, and other files, into a folder.
func write(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const kinds = `"""Tools with all types."""
import enum
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import starling
from helper import double
from random import random

print("start-up prints nothing")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Place:
    """A place.

    city: its name
    """
    city: str
    country: str = "DE"
    tags: list[str] = field(default_factory=list)


class Options(TypedDict):
    deep: bool
    since: NotRequired[date]


def all_types(place: Place, n: int, options: Options, colour: Colour = Colour.RED, unit: Literal["C", "F"] = "C", many: dict[str, list[float]] = {},
              pair: tuple[int, str] = (1, "a"), when: datetime | None = None, x: int | str = 0, size: Annotated[int, {"minimum": 1}] = 1) -> dict:
    """Shows what it got.

    Args:
        n: a number,
            in two lines
        unit (str): of temperature
    """
    return {"place": place, "type": type(n).__name__, "options": options, "colour": colour.name, "unit": unit, "many": many, "pair": pair,
            "when": when and when.year, "x": x, "double": double(n)}


async def waits(seconds: float) -> float:
    """Waits."""
    import asyncio
    await asyncio.sleep(seconds)
    return seconds


def fails(how: str) -> None:
    """Fails."""
    if how == "bug":
        {}["x"]
    if how == "raise":
        raise ValueError("how is wrong: use another")
    raise getattr(starling, how)("as asked") if how != "snooze" else starling.snooze(2, "later")


def draws() -> bool:
    """Draws a random number."""
    return 0 <= random() < 1


def no_tool(x):
    return x
`

// TestTypesOfATool: a signature becomes a schema, and the JSON of a call its values.
func TestTypesOfATool(t *testing.T) {
	dir := write(t, "tool.py", kinds, "helper.py", "def double(n):\n    return 2 * n\n")
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "db"), starling.Options{}))
	defer db.Close()
	for _, c := range []struct{ tool, input, want string }{
		{"all_types", `{"place":{"city":"Ulm"},"n":5.0,"options":{"deep":true,"since":"2024-02-29"},"colour":"blue","many":{"a":[1,2.5]},"when":"2024-01-02T03:04:05Z","x":"s"}`,
			`{"colour":"BLUE","double":10,"many":{"a":[1.0,2.5]},"options":{"deep":true,"since":"2024-02-29"},"pair":[1,"a"],"place":{"city":"Ulm","country":"DE","tags":[]},"type":"int","unit":"C","when":2024,"x":"s"}`},
		{"all_types", `{"place":{"city":"Ulm"},"n":1,"options":{"deep":true,"since":"2024-02-31"}}`, "options: day is out of range for month"},
		{"waits", `{"seconds":3600}`, `3600.0`},
		{"draws", `{}`, `true`},
		{"fails", `{"how":"bug"}`, "KeyError: 'x'\n  at line 58, column 9 in fails\n58 |         {}[\"x\"]\n             ^^^^^^^"},
		{"fails", `{"how":"raise"}`, "how is wrong: use another"},
		{"fails", `{"how":"discard"}`, "as asked"},
		{"fails", `{"how":"snooze"}`, "later"},
	} {
		tool, err := db.Load(t.Context(), dir, starling.ToolOptions{Name: c.tool})
		if err != nil {
			t.Fatal(err)
		}
		run, err := tool.Call(t.Context(), c.input)
		if run == nil {
			t.Fatal(err)
		}
		if got := run.Output() + reason(run); got != c.want && !strings.HasPrefix(reason(run), c.want) {
			t.Errorf("%s %s: got %s, want %s", c.tool, c.input, got, c.want)
		}
		if verdict, err := db.Replay(t.Context(), run.ID); err != nil || !verdict.Identical() {
			t.Errorf("%s: replay: %v, %v", c.tool, verdict, err)
		}
	}
}

// TestWhatIsNoTool: a file that is no tool is refused with its place.
func TestWhatIsNoTool(t *testing.T) {
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "db"), starling.Options{}))
	defer db.Close()
	for _, c := range []struct{ source, want string }{
		{"def f(x: int:\n", "tool.py:1:13: SyntaxError: invalid syntax\n1 | def f(x: int:\n                ^"},
		{"x = 1\n", "tool.py: there is no tool"},
		{"def f(x):\n    'Does it.'\n", "tool.py:1:7: the parameter x has no type\n1 | def f(x):\n          ^"},
		{"def f(x: complex):\n    'Does it.'\n", "tool.py:1:10: a tool cannot take or return complex"},
		{"def F() -> int:\n    'Does it.'\n", "the tool's name 'F'"},
		{"import requests\nrequests.get('http://example.com')\n", "tool.py:2:1: RuntimeError: code at the top of the file runs once, before all calls, and makes no requests"},
		{"import urllib.request\nx = urllib.request.urlopen('http://example.com')\n", "tool.py:2:5: RuntimeError: code at the top of the file"},
		{"import starling\nstarling.request('GET', 'http://example.com')\n", "tool.py:2:1: RuntimeError: code at the top of the file"},
		{"import starling\nstarling.tools.dice(rolls=1)\n", "tool.py:2:1: RuntimeError: code at the top of the file"},
		{"from pathlib import Path\nDATA = (Path(__file__).parent / 'data.json').read_text()\n", "No such file or directory: '/tool/data.json' (a tool has the modules beside its tool.py and no other files"},
		{"import ssl\n", "tool.py:1:1: ModuleNotFoundError: No module named 'ssl' (the host makes the HTTPS connections"},
		{"import numpy\n", "tool.py:1:1: ModuleNotFoundError: No module named 'numpy'"},
		{"print('x')\n1 / 0\n", "tool.py:2:1: ZeroDivisionError: division by zero\n2 | 1 / 0\n    ^^^^^"},
	} {
		_, err := db.Load(t.Context(), write(t, "tool.py", c.source), starling.ToolOptions{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q in it", c.source, err, c.want)
		}
	}
}

// TestHTTPOfATool sends requests with each of the three modules.
func TestHTTPOfATool(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/there?q=1", http.StatusFound)
			return
		}
		w.Header().Set("X-Path", r.URL.String())
		_ = json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "type": r.Header.Get("Content-Type"), "length": r.ContentLength})
	}))
	defer server.Close()
	dir := write(t, "tool.py", `import json, urllib.request
import requests, starling
def fetch(url: str) -> list:
    "Fetches."
    a = requests.post(url + "/a", params={"q": "ä b"}, json={"x": 1})
    b = requests.get(url + "/away")
    with urllib.request.urlopen(url + "/c") as response:
        c = json.load(response)
    d = starling.request("PUT", url + "/d", body="text", headers={"Content-Type": "text/plain"}, effect="d")
    return [a.json(), a.headers["x-path"], b.ok, b.url.removeprefix(url), len(b.history), c["method"], d.json()]
`)
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "db"), starling.Options{}))
	defer db.Close()
	tool, err := db.Load(t.Context(), dir, starling.ToolOptions{AllowHosts: []string{strings.TrimPrefix(server.URL, "http://")}, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	input, _ := json.Marshal(map[string]string{"url": server.URL})
	run, err := tool.Call(t.Context(), string(input))
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"length":8,"method":"POST","type":"application/json"},"/a?q=%C3%A4+b",true,"/there?q=1",1,"GET",{"length":4,"method":"PUT","type":"text/plain"}]`
	if run.Output() != want {
		t.Errorf("got %s, want %s", run.Output(), want)
	}
	if verdict, err := db.Replay(t.Context(), run.ID); err != nil || !verdict.Identical() {
		t.Errorf("replay: %v, %v", verdict, err)
	}
}

// TestTemplate runs the test that `tool new` gives to a tool, with the Python of this machine.
func TestTemplate(t *testing.T) {
	treetest.Needs(t, "python3")
	command := exec.Command("python3", "-m", "unittest", "-q")
	command.Dir = filepath.Join("guest-sdk", "python", "template")
	command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if said, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}
