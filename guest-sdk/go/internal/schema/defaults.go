package schema

import (
	"bytes"
	"encoding/json"
)

// Defaults are the values that a schema gives to members that are left out. A
// nil *Defaults gives none.
type Defaults struct {
	value   json.RawMessage      // of this place; nil: none
	members map[string]*Defaults // of an object; only where there is a default
	items   *Defaults            // of an array; likewise
}

// ParseDefaults finds the defaults of properties in a schema, at any depth of
// properties and items. It is nil if there are none.
func ParseDefaults(schema []byte) (*Defaults, error) {
	var s struct {
		Default    json.RawMessage            `json:"default"`
		Properties map[string]json.RawMessage `json:"properties"`
		Items      json.RawMessage            `json:"items"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, err
	}
	d := &Defaults{value: s.Default, members: map[string]*Defaults{}}
	for name, doc := range s.Properties {
		member, err := ParseDefaults(doc)
		if err != nil {
			return nil, err
		}
		if member != nil {
			d.members[name] = member
		}
	}
	var err error
	if s.Items != nil {
		d.items, err = ParseDefaults(s.Items)
	}
	if d.value == nil && len(d.members) == 0 && d.items == nil {
		return nil, err
	}
	return d, err
}

// Fill returns a document with the missing members added. Existing members
// stay, null included, and so does a document of another shape, which the check
// of the schema reports.
func (d *Defaults) Fill(doc []byte) ([]byte, error) {
	if d == nil {
		return doc, nil
	}
	switch trimmed := bytes.TrimLeft(doc, " \t\r\n"); {
	case len(d.members) > 0 && bytes.HasPrefix(trimmed, []byte("{")):
		return d.fillObject(doc)
	case d.items != nil && bytes.HasPrefix(trimmed, []byte("[")):
		return d.fillArray(doc)
	}
	return doc, nil
}

func (d *Defaults) fillObject(doc []byte) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(doc, &object); err != nil {
		return nil, err
	}
	for name, member := range d.members {
		value, there := object[name]
		if !there && member.value == nil {
			continue
		}
		filled := member.value
		if there {
			var err error
			if filled, err = member.Fill(value); err != nil {
				return nil, err
			}
		}
		object[name] = filled
	}
	return json.Marshal(object)
}

func (d *Defaults) fillArray(doc []byte) ([]byte, error) {
	var array []json.RawMessage
	if err := json.Unmarshal(doc, &array); err != nil {
		return nil, err
	}
	for i, item := range array {
		filled, err := d.items.Fill(item)
		if err != nil {
			return nil, err
		}
		array[i] = filled
	}
	return json.Marshal(array)
}
