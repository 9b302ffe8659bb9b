package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/narrate"
)

func queryEscape(s string) string { return url.QueryEscape(s) }

// Bounds of the long texts that are shown beside a payload.
const (
	maxTexts   = 40
	longText   = 200 // characters without a line break that make a text long
	maxUnfolds = 64 << 10
)

// longTexts returns the texts of a payload that JSON shows on one line although they
// have several, such as a model's answer or an HTTP message, each with its path.
func longTexts(payload canon.Raw) []fact {
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
	var found []fact
	collectTexts(v, "", &found)
	return found
}

func collectTexts(v any, path string, found *[]fact) {
	if len(*found) >= maxTexts {
		return
	}
	switch v := v.(type) {
	case string:
		if strings.Contains(v, "\n") || utf8.RuneCountInString(v) > longText {
			*found = append(*found, fact{path, unfolded(v)})
		}
	case []any:
		for i, element := range v {
			collectTexts(element, fmt.Sprintf("%s[%d]", path, i), found)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			inner := strings.TrimPrefix(path+"."+narrate.Printable(name), ".")
			if name == "$text" && len(v) == 1 {
				inner = path // a byte string that is text
			}
			collectTexts(v[name], inner, found)
		}
	}
}

// unfolded keeps line breaks and tabs and escapes all else that is not printable.
func unfolded(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	if len(s) > maxUnfolds {
		s = s[:maxUnfolds] + "\n..."
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = narrate.Printable(strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}
