// Package scheduler divides the processors of one host between tenants, and memory.
//
// A [Scheduler] has a number of slots. A caller that holds one computes; the others wait.
// The next free slot goes to the tenant that has used the least. This is start-time fair
// queueing (Goyal, Vin and Cheng, 1996) with time for cost. Each tenant has a tag, the
// point in virtual time at which its next slot begins. A slot moves the tag on by the
// seconds that it was held, divided by the tenant's weight. These are known only at its
// release, so the tenant pays the average in advance and the rest then: a tenant that
// holds many slots at once has paid for them. A tenant that comes back starts at the
// current virtual time and has saved nothing up. One that has used more than its share
// keeps its debt, even if it leaves for a moment.
//
// So a tenant within its share waits for one release at most, however much work other
// tenants have queued. A slot is never taken away: it is meant to be short. A caller
// that starts to wait, or is demoted, releases its slot and acquires another one later.
//
// Some work comes in pieces that no one can make short, such as decoding one large event.
// It is done within [Claim].Most: at any cost, slots are left for short work.
//
// A [Pool] does the same for bytes of memory.
package scheduler
