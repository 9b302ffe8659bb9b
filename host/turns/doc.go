// Package turns divides what is scarce on one host between tenants: the processors.
//
// A [Line] has a number of turns, and who has one computes. When all are taken the
// others wait, and the next turn is for the tenant that has used the least. It is
// start-time fair queueing (Goyal, Vin and Cheng, 1996), as in package queue, with
// time for cost: each tenant has a tag, the point in virtual time at which its next
// turn begins, and a turn moves it on by the seconds that it took, divided by the
// tenant's weight. They are known when it ends, so what turns take on average is paid
// in advance and the rest then: a tenant that has many turns at once has paid for
// them. A tenant that comes back begins where virtual time is, and saves nothing up;
// one that has taken more than its share, and leaves for a moment, finds its debt.
//
// So a tenant within its share waits for the end of one turn at most, whatever others
// have waiting: they wait behind it. Turns are not taken back. They are meant to be
// short, and who waits for something else, or gives way by other means, ends its turn
// and takes another one.
package turns
