package main

import (
	"fmt"

	"github.com/itchyny/gojq"
)

const (
	// maxOutput is the largest output, in bytes; hosts take 1 MiB with the
	// envelope by default.
	maxOutput = 1_000_000
	// maxDepth is how deep arrays and objects of a result may nest. Hosts take
	// 64 levels; the list, the object around it and the envelope take three.
	maxDepth = 61
)

// collector gathers results as the elements of a JSON array.
type collector struct {
	doc   []byte
	count int
}

func (c *collector) add(value any) error {
	if c.count == maxResults {
		return fmt.Errorf("query: more than %d results", maxResults)
	}
	budget := maxOutput - len(c.doc)
	if err := measure(value, maxDepth, &budget); err != nil {
		return err
	}
	doc, err := gojq.Marshal(value)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	if c.count > 0 {
		c.doc = append(c.doc, ',')
	}
	c.doc = append(c.doc, doc...)
	c.count++
	if len(c.doc) > maxOutput {
		return errTooLarge
	}
	return nil
}

var (
	errTooLarge = fmt.Errorf("query: the results have more than %d bytes", maxOutput)
	errTooDeep  = fmt.Errorf("query: a result nests too deep, more than %d levels", maxDepth)
)

// measure checks a value before it is written. A few steps of a program make a
// value that contains itself sixty times over, small in memory and without end
// on paper, so the walk stops when the bytes that must be written at least, one
// per value, exceed the budget.
func measure(value any, depth int, budget *int) error {
	*budget--
	if text, ok := value.(string); ok {
		*budget -= len(text)
	}
	if *budget < 0 {
		return errTooLarge
	}
	switch v := value.(type) {
	case []any:
		if depth == 0 {
			return errTooDeep
		}
		for _, element := range v {
			if err := measure(element, depth-1, budget); err != nil {
				return err
			}
		}
	case map[string]any:
		if depth == 0 {
			return errTooDeep
		}
		for name, element := range v {
			*budget -= len(name)
			if err := measure(element, depth-1, budget); err != nil {
				return err
			}
		}
	}
	return nil
}
