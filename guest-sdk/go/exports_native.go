//go:build !wasip1

package starling

import "github.com/starling-host/starling/guest-sdk/go/internal/door"

// Without a module there are no exports; package starlingtest calls these.
func init() { door.Export(door.Guest{Describe: describe, Execute: execute}) }
