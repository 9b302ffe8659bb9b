package provider

import (
	"regexp"
	"slices"

	"github.com/starling-host/starling/eventlog/canon"
)

// plainName is a name of a tool that every vendor takes.
var plainName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$`)

// notPlain is what a plain name does not have.
var notPlain = regexp.MustCompile(`[^a-zA-Z0-9_-]+`)

// PlainNames returns the request with names of tools that every vendor takes, and for each
// name that is not the tool's own the one that is. The new name is a function of the old one,
// unless another tool of the request has it, and ends with a part of its hash.
func (r *Request) PlainNames() (plain *Request, own map[string]string) {
	own = map[string]string{}
	given := map[string]string{}
	taken := map[string]bool{}
	for _, t := range r.Tools {
		taken[t.Name] = true
	}
	rename := func(name string) string {
		if plainName.MatchString(name) {
			return name
		}
		if _, ok := given[name]; !ok {
			hash := canon.Sum([]byte(name))
			begin := "_" + notPlain.ReplaceAllString(name, "_")
			if plainName.MatchString(begin[1:min(len(begin), 2)]) {
				begin = begin[1:]
			}
			made := begin[:min(len(begin), 55)] + "_" + hash.String()[:8]
			for taken[made] {
				hash = canon.Sum(hash[:])
				made = begin[:min(len(begin), 55)] + "_" + hash.String()[:8]
			}
			given[name], own[made], taken[made] = made, name, true
		}
		return given[name]
	}
	renamed := *r
	renamed.Tools, renamed.Messages = slices.Clone(r.Tools), slices.Clone(r.Messages)
	for i := range renamed.Tools {
		renamed.Tools[i].Name = rename(renamed.Tools[i].Name)
	}
	if _, ok := given[r.ToolChoice]; ok {
		renamed.ToolChoice = given[r.ToolChoice]
	}
	for i := range renamed.Messages {
		uses := slices.Clone(renamed.Messages[i].ToolUses)
		for j := range uses {
			uses[j].Name = rename(uses[j].Name)
		}
		renamed.Messages[i].ToolUses = uses
	}
	return &renamed, own
}
