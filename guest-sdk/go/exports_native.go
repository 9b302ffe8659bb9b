//go:build !wasip1

package starling

import "github.com/starling-host/starling/guest-sdk/go/internal/hostcall"

// Without a module there are no exports; package starlingtest calls these.
func init() { hostcall.Export(hostcall.Guest{Describe: describe, Execute: execute}) }
