package script

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/starling-host/starling/runtime/provider"
)

// Class is a class of failure.
type Class string

// The classes. All but the last are those of package provider.
const (
	RateLimit  Class = "rate_limit"
	Auth       Class = "auth"
	Server     Class = "server"
	Network    Class = "network"
	BadRequest Class = "bad_request" // a mistake of the caller, of no class
)

var classes = map[Class]error{
	RateLimit: provider.ErrRateLimit, Auth: provider.ErrAuth, Server: provider.ErrServer, Network: provider.ErrNetwork,
	BadRequest: nil,
}

func (f *Failure) check() error {
	if _, ok := classes[f.Class]; !ok {
		var names []string
		for _, c := range slices.Sorted(maps.Keys(classes)) {
			names = append(names, string(c))
		}
		return fmt.Errorf("there is no class %q of failures, but %s", f.Class, strings.Join(names, ", "))
	}
	if f.AfterChunks < 0 {
		return fmt.Errorf("after_chunks is %d, want 0 or more", f.AfterChunks)
	}
	return nil
}

// err returns the failure as a provider reports it.
func (f *Failure) err() error {
	if f == nil {
		return nil
	}
	message := cmp.Or(f.Message, strings.ReplaceAll(string(f.Class), "_", " "))
	if class := classes[f.Class]; class != nil {
		return fmt.Errorf("%w: script: %s", class, message)
	}
	return fmt.Errorf("script: %s", message)
}
