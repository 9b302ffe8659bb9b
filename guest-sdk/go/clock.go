package starling

import "github.com/starling-host/starling/guest-sdk/go/internal/hostcall"

// Now returns the host's clock, in nanoseconds of Unix time. Each reading is
// recorded. It is a number because package time would add a quarter of a
// megabyte to modules that have no other use for it; where it is imported,
// time.Unix(0, starling.Now()) is the time.
//
// time.Now is safe as well: within a call it starts from one recorded reading
// and runs in virtual time, which costs no further record. An exchange moves it
// by the time that the host recorded for it. And package starlingtest can set only Now.
func Now() int64 { return hostcall.Now() }

// Random returns 64 uniform random bits. Each draw is recorded.
//
// crypto/rand is safe as well: it expands one recorded seed. The functions of
// math/rand and math/rand/v2 that take no source of their own are not random
// between calls, because their seed is part of the prepared memory image: every
// call draws the same numbers. The same holds for the order of maps.
func Random() uint64 { return hostcall.Random() }
