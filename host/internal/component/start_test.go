package component

import (
	"strings"
	"testing"
)

// TestDataAfterAStart: data of a part is written before anything runs. So a part with data may not
// come after one whose start uses memory, because that would see it.
func TestDataAfterAStart(t *testing.T) {
	const store = "\x00\x41\x00\x41\x00\x36\x02\x00\x0b"
	starts := func(body string) string {
		return core(listSection(1, plain0), listSection(3, "\x00"), listSection(5, "\x00\x01"), listSection(7, text("m")+"\x02\x00"), raw(8, "\x00"), listSection(10, u32(len(body))+body))
	}
	importing := func(sections ...string) string {
		return core(append([]string{listSection(2, text("a")+text("m")+"\x02\x00\x01")}, sections...)...)
	}
	data := importing(listSection(11, "\x00\x41\x00\x0b\x01x"))
	two := listSection(2, "\x00\x00\x00", "\x00\x01"+vector(text("a")+"\x12\x00"))
	for what, c := range map[string]struct {
		parts   string
		refused bool
	}{
		"data after a start that writes":         {starts(store) + data, true},
		"data after a start that does nothing":   {starts("\x00\x0b") + data, false},
		"no data after a start that writes":      {starts(store) + importing(), false},
		"data of the part itself before it runs": {core(listSection(1, plain0), listSection(3, "\x00"), listSection(5, "\x00\x01"), listSection(7, text("m")+"\x02\x00"), raw(8, "\x00"), listSection(10, u32(len(store))+store), listSection(11, "\x00\x41\x00\x0b\x01x")) + importing(), false},
	} {
		b := []byte(componentHeader + c.parts + two + callable(1, 2, 2, plain0, nothing0))
		_, err := Link(budget(t, b), b)
		if refused := err != nil && strings.Contains(err.Error(), "has data that is written after another part has started"); refused != c.refused || err != nil && !refused {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestReentrance: a part may call its sibling, and not the instance that is calling it.
func TestReentrance(t *testing.T) {
	caller := componentHeader + listSection(7, nothing0) + listSection(10, "\x00"+text("f")+"\x01\x00") + listSection(8, "\x01\x00\x00\x00") +
		core(listSection(1, plain0), listSection(2, text("")+text("f")+"\x00\x00"), listSection(3, "\x00"), listSection(7, text("g")+"\x00\x01"), listSection(10, "\x04\x00\x10\x00\x0b")) +
		listSection(2, "\x01"+vector(text("f")+"\x00\x00"), "\x00\x00"+vector(text("")+"\x12\x00")) + listSection(6, "\x00\x00\x01\x01"+text("g")) +
		listSection(8, "\x00\x00\x01\x00\x00") + listSection(11, "\x00"+text("g")+"\x01\x01\x00")
	callee := callable(1, 0, 0, plain0, nothing0)
	for what, c := range map[string]struct{ component, want string }{
		"the instance around it": {callee + raw(4, caller) + listSection(5, "\x00\x00"+vector(text("f")+"\x01\x00")) +
			listSection(6, "\x01\x00\x00"+text("g")) + listSection(11, "\x00"+text("g")+"\x01\x02\x00"), "trap: unreachable"},
		"a sibling": {raw(4, componentHeader+callee) + raw(4, caller) + listSection(5, "\x00\x00\x00") + listSection(6, "\x01\x00\x00"+text("n0")) +
			listSection(5, "\x00\x01"+vector(text("f")+"\x01\x00")) + listSection(6, "\x01\x00\x01"+text("g")) + listSection(11, "\x00"+text("g")+"\x01\x01\x00"), `{"output":null}`},
	} {
		if got := loadBytes(t, []byte(componentHeader+c.component)).call("g", "{}"); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}
