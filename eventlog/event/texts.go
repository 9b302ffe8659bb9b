package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/display"
)

// Indented is a payload as printable JSON for reading.
func Indented(payload canon.Raw) string {
	doc, err := canon.Render(payload)
	if err != nil {
		return "cannot be shown: " + display.PrintableError(err)
	}
	doc = display.PrintableJSON(doc)
	var b bytes.Buffer
	if json.Indent(&b, doc, "", "  ") != nil {
		return string(doc)
	}
	return b.String()
}

// Text is a text of a payload, with its place, such as "args.code".
type Text struct {
	Path string `json:"path"`
	Text string `json:"text"` // printable lines
}

// Bounds of the long texts that are shown beside a payload.
const (
	maxTexts  = 40
	longText  = 200 // characters without a line break that make a text long
	mostShown = 64 << 10
)

// LongTexts returns the texts of a payload that JSON shows on one line although they
// have several, such as a model's answer or an HTTP message.
func LongTexts(payload canon.Raw) []Text {
	doc, err := canon.Render(payload)
	if err != nil {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	var found []Text
	collectTexts(v, "", &found)
	return found
}

func collectTexts(v any, path string, found *[]Text) {
	if len(*found) >= maxTexts {
		return
	}
	switch v := v.(type) {
	case string:
		if strings.Contains(v, "\n") || utf8.RuneCountInString(v) > longText {
			if len(v) > mostShown {
				v = v[:mostShown] + "\n..."
			}
			*found = append(*found, Text{path, display.PrintableText(strings.TrimRight(v, "\r\n"))})
		}
	case []any:
		for i, element := range v {
			collectTexts(element, fmt.Sprintf("%s[%d]", path, i), found)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			inner := strings.TrimPrefix(path+"."+display.Printable(name), ".")
			if name == "$text" && len(v) == 1 {
				inner = path // a byte string that is text
			}
			collectTexts(v[name], inner, found)
		}
	}
}
