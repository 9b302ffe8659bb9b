package toolcase

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
)

// Folder is the folder of a tool that holds its cases, and Suffix the end of their names.
const (
	Folder = "cases"
	Suffix = ".txtar"
)

// The files of a case.
const (
	fileTool    = "tool"
	fileInput   = "input.json"
	fileEffects = "effects.json"
	fileOutput  = "output.json"
	fileError   = "error.txt"
	fileFuel    = "fuel"
)

var files = []string{fileTool, fileInput, fileEffects, fileOutput, fileError, fileFuel}

// Case is one case of a tool.
type Case struct {
	Name    string // of its file, without the suffix
	Path    string // of its file
	Comment string // what the file has above its parts
	Tool    string // empty for the only tool of the module
	Input   []byte // a JSON document
	Effects []Effect

	Output []byte // the expected result, a JSON document; nil for none
	Error  string // the expected failure; empty for none
	Fuel   Band
}

// Band is the range in which a call's fuel must be. The zero Band allows any.
type Band struct{ Min, Max uint64 }

// String returns the band as cases have it.
func (b Band) String() string { return exact(b.Min) + ".." + exact(b.Max) }

// exact writes an amount of fuel with a suffix, if that leaves a whole number.
func exact(n uint64) string {
	for _, u := range slices.Backward(display.FuelUnits()) {
		if n >= u.Factor && n%u.Factor == 0 {
			return fmt.Sprintf("%d%s", n/u.Factor, u.Suffix)
		}
	}
	return fmt.Sprint(n)
}

// around returns the band from three to five quarters of a measured value, rounded to two digits.
func around(fuel uint64) Band {
	unit := uint64(math.Pow10(max(len(fmt.Sprint(fuel))-2, 0)))
	return Band{max(fuel/4*3/unit*unit, 1), (fuel/4*5/unit + 1) * unit}
}

// Error is the reason why a file is not a case, or a case has no tool.
type Error struct {
	Path, Reason, Hint string // no path: the module is wrong
}

// Error returns the path, if there is one, and the reason.
func (e *Error) Error() string {
	if e.Path == "" {
		return e.Reason
	}
	return e.Path + ": " + e.Reason
}

// Advice implements [hint.Hinted].
func (e *Error) Advice() string { return e.Hint }

// Load reads the cases of a tool, sorted by name: all, or those that are named. The
// error is an [*Error] if one of them is not a case, or there is none.
func Load(ref string, names ...string) (cases []*Case, err error) {
	dir := FolderOf(ref)
	if len(names) == 0 {
		entries, err := os.ReadDir(filepath.Join(dir, Folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if name, ok := strings.CutSuffix(e.Name(), Suffix); ok {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		path := filepath.Join(dir, Folder, strings.TrimSuffix(filepath.Base(name), Suffix)+Suffix)
		text, err := keyfile.ReadFile(path, keyfile.MaxBytes)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &Error{Path: path, Reason: "there is no such case"}
		} else if err != nil {
			return nil, err
		}
		c, err := Parse(path, text)
		if err != nil {
			return nil, err
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// Parse reads the text of a case. The error is an [*Error].
func Parse(path string, text []byte) (*Case, error) {
	broken := func(hint, format string, args ...any) error {
		return &Error{path, fmt.Sprintf(format, args...), hint}
	}
	archive := txtar.Parse(text)
	c := &Case{Name: strings.TrimSuffix(filepath.Base(path), Suffix), Path: path, Comment: string(archive.Comment)}
	seen := map[string]bool{}
	for _, f := range archive.Files {
		if !slices.Contains(files, f.Name) || seen[f.Name] {
			return nil, broken("a case has "+strings.Join(files, ", ")+", each once", "%s: this part is not known, or there twice", f.Name)
		}
		seen[f.Name] = true
		content := strings.TrimSpace(string(f.Data))
		switch f.Name {
		case fileTool:
			c.Tool = content
		case fileError:
			c.Error = content
		case fileFuel:
			low, high, found := strings.Cut(content, "..")
			var err error
			if c.Fuel.Min, err = display.ParseCount(strings.TrimSpace(low), display.FuelUnits()); err == nil {
				c.Fuel.Max, err = display.ParseCount(strings.TrimSpace(high), display.FuelUnits())
			}
			if err != nil || !found || c.Fuel.Min > c.Fuel.Max {
				return nil, broken("", "%s: %q is not a range such as 200k..400k", fileFuel, content)
			}
		case fileEffects:
			if err := decode([]byte(content), &c.Effects); err != nil {
				return nil, broken("", "%s: %v", fileEffects, err)
			}
			for i := range c.Effects {
				if err := c.Effects[i].check(); err != nil {
					return nil, broken("", "%s: effect %d: %v", fileEffects, i+1, err)
				}
			}
		default:
			doc, err := canon.Parse([]byte(content))
			if syntax, ok := errors.AsType[*canon.SyntaxError](err); ok {
				return nil, broken(syntax.Hint, "%s: line %d, column %d: %s", f.Name, syntax.Line, syntax.Column, syntax.Msg)
			} else if err != nil {
				return nil, broken("", "%s: %v", f.Name, err)
			}
			if f.Name == fileInput {
				c.Input = []byte(content)
			} else {
				c.Output = doc.JSON
			}
		}
	}
	if c.Input == nil {
		return nil, broken("begin with a line -- "+fileInput+" --, and the input below it", "it has no %s", fileInput)
	}
	if c.Output != nil && c.Error != "" {
		return nil, broken("", "it has both %s and %s: a call has one of them", fileOutput, fileError)
	}
	return c, nil
}

// decode parses JSON strictly.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		return nil
	}
	reason, at := strings.TrimPrefix(err.Error(), "json: "), int64(-1)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = syntax.Offset
	} else if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		reason, at = fmt.Sprintf("%s cannot be of type %s", cmp.Or(strings.TrimPrefix(kind.Field, "."), "it"), kind.Value), kind.Offset
	}
	if at < 0 {
		return errors.New(reason)
	}
	return fmt.Errorf("line %d: %s", 1+bytes.Count(text[:min(int(at), len(text))], []byte("\n")), reason)
}

// encode writes JSON for people.
func encode(v any) []byte {
	doc, err := display.JSON(v, "  ")
	if err != nil {
		panic(err) // only strings, numbers and valid JSON are encoded
	}
	return append(doc, '\n')
}

// Format returns the text of a case.
func (c *Case) Format() []byte {
	a := &txtar.Archive{Comment: []byte(c.Comment)}
	add := func(name string, text []byte, wanted bool) {
		if wanted {
			a.Files = append(a.Files, txtar.File{Name: name, Data: append(bytes.TrimSpace(text), '\n')})
		}
	}
	add(fileTool, []byte(c.Tool), c.Tool != "")
	add(fileInput, c.Input, true)
	add(fileEffects, encodeEffects(c.Effects), len(c.Effects) > 0)
	add(fileOutput, encode(json.RawMessage(c.Output)), c.Output != nil)
	add(fileError, []byte(c.Error), c.Error != "")
	add(fileFuel, []byte(c.Fuel.String()), c.Fuel != Band{})
	return txtar.Format(a)
}

// encodeEffects writes a reading of the clock or a random value on one line.
func encodeEffects(effects []Effect) []byte {
	lines := make([]string, len(effects))
	for i, e := range effects {
		text := bytes.TrimSpace(encode(e))
		if e.Request == nil && e.Call == nil {
			lines[i] = string(bytes.Join(bytes.Fields(text), []byte(" ")))
		} else {
			lines[i] = strings.ReplaceAll(string(text), "\n", "\n  ")
		}
	}
	return []byte("[\n  " + strings.Join(lines, ",\n  ") + "\n]")
}

// denied returns the host of a recorded request that was denied, or nothing.
func (c *Case) denied() string {
	for _, e := range c.Effects {
		if e.Failure == nil || e.Request == nil || e.Failure.Status != abi.StatusDenied.String() {
			continue
		}
		if u, err := url.Parse(e.Request.URL); err == nil {
			return u.Host
		}
	}
	return ""
}
