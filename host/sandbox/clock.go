package sandbox

// tick is the step of the virtual clock at each reading, and its reported resolution. So a
// guest that waits for time to pass makes progress.
const tick = 1000 // ns

// maxMono keeps a guest that sleeps for ever from overflowing its clock.
const maxMono = 1 << 62

// startTime is the time of day during start-up: 2000-01-01T00:00:00Z.
const startTime = 946_684_800_000_000_000

// startName is args[0] during start-up: a module is started once for
// all of its tools.
const startName = "tool"

// startSeed is the key of the generator during start-up.
var startSeed = [32]byte([]byte("starling:v1 sealed random_get   "))

// clock is a guest's virtual clock. It moves when the guest reads it, sleeps, makes an
// exchange or spends fuel (a nanosecond for each unit), and never by itself. It gets the
// time of day once.
type clock struct {
	mono     uint64 // ns since the instance began
	ran      uint64 // the count of fuel up to which the clock has run
	offset   uint64 // time of day minus mono, modulo 2^64
	anchored bool
}

func (c *clock) advance(ns uint64) { c.mono = min(c.mono+min(ns, maxMono), maxMono) }

// run moves the clock up to a count of fuel.
func (c *clock) run(fuel uint64) {
	c.advance(fuel - c.ran)
	c.ran = fuel
}

// recount runs the clock up to a count that starts again at zero.
func (c *clock) recount(fuel uint64) {
	c.run(fuel)
	c.ran = 0
}

// observe sets the clock to t, in Unix nanoseconds. The first call sets the time of day;
// later ones never set it back.
func (c *clock) observe(t int64) {
	now := uint64(max(t, 0))
	switch {
	case !c.anchored:
		c.offset, c.anchored = now-c.mono, true
	case now > c.realtime():
		c.advance(now - c.realtime())
	}
}

// forget drops the time of day.
func (c *clock) forget() { c.offset, c.anchored = 0, false }

func (c *clock) realtime() uint64 { return c.offset + c.mono }
