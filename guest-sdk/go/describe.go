package starling

import "strconv"

// describe returns the document of starling_describe: the tools, in the order
// of their registration.
func describe() []byte {
	doc := []byte(`{"tools":[`)
	for i := range tools {
		if i > 0 {
			doc = append(doc, ',')
		}
		doc = tools[i].appendDescription(doc)
	}
	return append(doc, `]}`...)
}

func (t *Tool) appendDescription(doc []byte) []byte {
	doc = appendString(append(doc, `{"name":`...), t.Name)
	doc = appendString(append(doc, `,"description":`...), t.Description)
	schema := t.InputSchema
	if schema == "" {
		schema = `{"type":"object"}`
	}
	doc = append(append(doc, `,"input_schema":`...), schema...)
	if t.OutputSchema != "" {
		doc = append(append(doc, `,"output_schema":`...), t.OutputSchema...)
	}
	doc = appendEffects(doc, t.Effects)
	if t.Idempotent {
		doc = append(doc, `,"idempotent":true`...)
	}
	return append(t.Limits.append(doc), '}')
}

func appendEffects(doc []byte, hosts []string) []byte {
	if len(hosts) == 0 {
		return doc
	}
	doc = append(doc, `,"effects":`...)
	separator := byte('[')
	for _, host := range hosts {
		doc = appendString(append(doc, separator), host)
		separator = ','
	}
	return append(doc, ']')
}

// append adds the member "limits", unless every limit is the default.
func (l Limits) append(doc []byte) []byte {
	if l == (Limits{}) {
		return doc
	}
	doc = append(doc, `,"limits":`...)
	separator := byte('{')
	add := func(name string, value uint64) {
		if value == 0 {
			return
		}
		doc = appendString(append(doc, separator), name)
		doc = strconv.AppendUint(append(doc, ':'), value, 10)
		separator = ','
	}
	add("fuel", l.Fuel)
	add("memory_bytes", l.MemoryBytes)
	add("timeout_ms", uint64(l.TimeoutMs))
	return append(doc, '}')
}
