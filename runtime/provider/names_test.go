package provider

import (
	"strings"
	"testing"
)

// TestPlainNames maps names that vendors refuse, and back, so that no two tools share one.
func TestPlainNames(t *testing.T) {
	names := []string{"plain", "with-hyphen_1", "a.b", "a/b", "a b", "a_b", strings.Repeat("x", 130), strings.Repeat("x", 130) + "y", "1st", "ä", "", strings.Repeat("z", 64), "mö\xff", "-x"}
	r := &Request{ToolChoice: "a.b", Messages: []Message{{Role: RoleAssistant, ToolUses: []ToolUse{{Name: "a/b"}, {Name: "not.there"}, {Name: "plain"}}}}}
	for _, name := range names {
		r.Tools = append(r.Tools, ToolDefinition{Name: name})
	}
	first, _ := r.PlainNames()
	r.Tools = append(r.Tools, ToolDefinition{Name: first.Tools[2].Name}) // that another tool has for its own
	plain, own := r.PlainNames()
	seen := map[string]bool{}
	for i, tool := range plain.Tools {
		back, renamed := own[tool.Name]
		if !renamed {
			back = tool.Name
		}
		if !plainName().MatchString(tool.Name) || seen[tool.Name] || back != r.Tools[i].Name {
			t.Errorf("%q is %q, and back %q", r.Tools[i].Name, tool.Name, back)
		}
		seen[tool.Name] = true
	}
	if plain.Tools[0].Name != "plain" || plain.Tools[11].Name != strings.Repeat("z", 64) || plain.ToolChoice != plain.Tools[2].Name ||
		plain.Messages[0].ToolUses[0].Name != plain.Tools[3].Name || own[plain.Messages[0].ToolUses[1].Name] != "not.there" || r.Messages[0].ToolUses[0].Name != "a/b" {
		t.Errorf("%+v", plain)
	}
	again, _ := r.PlainNames()
	for i := range again.Tools {
		if again.Tools[i].Name != plain.Tools[i].Name {
			t.Errorf("%q is another name each time", r.Tools[i].Name)
		}
	}
}
