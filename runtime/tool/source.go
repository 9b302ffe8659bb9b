package tool

// Sourced is a tool that a program can find again by a name, so that a run is
// replayed where the tool was never set up. What the name says is recorded with
// the run.
type Sourced interface {
	Tool

	// Source is a kind and a name, such as "builtin:fetch" or "mcp:search".
	Source() string
}

// SourceOf returns the source of t, or of the tool that t wraps, or "".
func SourceOf(t Tool) string {
	for t != nil {
		if s, ok := t.(Sourced); ok {
			return s.Source()
		}
		w, ok := t.(Wrapper)
		if !ok {
			return ""
		}
		t = w.Unwrap()
	}
	return ""
}

// WithSource returns t with a source.
func WithSource(t Tool, source string) Tool { return sourced{t, source} }

type sourced struct {
	Tool
	source string
}

// Source implements [Sourced].
func (s sourced) Source() string { return s.source }

// Unwrap implements [Wrapper].
func (s sourced) Unwrap() Tool { return s.Tool }

// SourceExport begins the source of a tool that has another name in its module.
const SourceExport = "export:"

// Rename returns t under another name. If it has no source, that says then what it
// was called.
func Rename(t Tool, name string) Tool {
	source := SourceOf(t)
	if source == "" {
		source = SourceExport + t.Name()
	}
	return renamed{sourced{t, source}, name}
}

type renamed struct {
	sourced
	name string
}

// Name implements [Tool].
func (r renamed) Name() string { return r.name }
