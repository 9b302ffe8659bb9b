package daemon

import (
	linked "container/list"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/tenant"
)

// connections is the connection limit of a host. It knows every client connection, the tenant whose
// key was used on it last, and whether it has a request in progress. When the limit is reached, a
// new connection replaces an old one:
//
//   - As long as connections without a key have more than a quarter of the places, the
//     oldest of them is closed. So a new client has time to send its key, and clients
//     that never send one compete among themselves.
//   - Otherwise the tenant with the most connections loses one: the one that has been
//     idle longest or, if none is idle, the one with the oldest request.
type connections struct {
	limit  int
	logger *slog.Logger

	mu     sync.Mutex // guards what follows, and the fields of each conn
	count  int
	of     map[string]*connectionGroup // by tenant; "" has those without a key
	closed int                         // to make room, since the last report
	told   time.Time
}

// connectionGroup has the connections of one tenant. Connections without a key are all in busy, in
// the order in which they arrived.
type connectionGroup struct{ idle, busy linked.List }

// conn is a client connection.
type conn struct {
	net.Conn
	all    *connections
	tenant string // whose key came last, or ""
	keyed  bool   // the request that is being served came with a key
	list   *linked.List
	at     *linked.Element // in list; nil once the connection is closed
}

func newConnections(limit int, logger *slog.Logger) *connections {
	return &connections{limit: limit, logger: logger, of: map[string]*connectionGroup{}}
}

// limitedListener is a listener whose connections count.
type limitedListener struct {
	net.Listener
	all *connections
}

// Accept implements [net.Listener].
func (l limitedListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, all: l.all}
	if old := l.all.add(c); old != nil {
		if tcp, ok := old.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // what the client has not read must not stay in the kernel
		}
		old.Conn.Close()
	}
	return c, nil
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.all.mu.Lock()
	c.all.remove(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// add counts a new connection. It returns the connection that has to be closed for it, if
// all places were taken.
func (s *connections) add(c *conn) (old *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == s.limit {
		old = s.victim()
		s.remove(old)
		if s.closed++; time.Since(s.told) > time.Minute {
			s.logger.Warn("all connections are in use: closing old ones", "limit", s.limit, "closed", s.closed)
			s.told, s.closed = time.Now(), 0
		}
	}
	s.count++
	s.put(c, "", true)
	return old
}

// victim returns the connection to close when there is no room.
func (s *connections) victim() *conn {
	var most *connectionGroup
	if g := s.of[""]; g != nil && g.busy.Len() > s.limit/4 {
		most = g
	}
	if most == nil {
		for tenant, g := range s.of {
			if tenant != "" && (most == nil || g.len() > most.len()) {
				most = g
			}
		}
	}
	if e := most.idle.Front(); e != nil {
		return e.Value.(*conn)
	}
	return most.busy.Front().Value.(*conn)
}

func (g *connectionGroup) len() int { return g.idle.Len() + g.busy.Len() }

// put moves a connection to the end of its list, unless it is in that list already.
func (s *connections) put(c *conn, tenant string, busy bool) {
	g := s.of[tenant]
	if g == nil {
		g = &connectionGroup{}
	}
	list := &g.idle
	if busy || tenant == "" {
		list = &g.busy
	}
	if list == c.list {
		return
	}
	s.take(c)
	s.of[tenant] = g // which may have lost its last one
	c.tenant, c.list, c.at = tenant, list, list.PushBack(c)
}

// take removes a connection from its list, and forgets a tenant that has none left.
func (s *connections) take(c *conn) {
	if c.at == nil {
		return
	}
	c.list.Remove(c.at)
	c.list, c.at = nil, nil
	if s.of[c.tenant].len() == 0 {
		delete(s.of, c.tenant)
	}
}

// remove has a connection not count any more.
func (s *connections) remove(c *conn) {
	if c.at != nil {
		s.take(c)
		s.count--
	}
}

type connKey struct{}

// connOf returns the connection of a request, or nil in a test without one.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// unwrapped returns the connection below the encryption.
func unwrapped(c net.Conn) *conn {
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secured.NetConn()
	}
	return c.(*conn)
}

// context is for [http.Server.ConnContext].
func (s *connections) context(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, unwrapped(c))
}

// state is for [http.Server.ConnState]. The start of a request is reported by [conn.begin], because
// the server does not report a request that it has read together with the one before.
func (s *connections) state(c net.Conn, state http.ConnState) {
	if state == http.StateIdle {
		unwrapped(c).set(func(c *conn) { s.put(c, c.tenant, false) })
	}
}

// set changes a connection that has not been closed.
func (c *conn) set(change func(*conn)) {
	if c == nil {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.at != nil {
		change(c)
	}
}

// begin marks the connection as serving a request. Its key is not yet known.
func (c *conn) begin() {
	c.set(func(c *conn) {
		c.keyed = false
		c.all.put(c, c.tenant, true)
	})
}

// claim notes that the request has the key of a tenant.
func (c *conn) claim(tenant string) {
	c.set(func(c *conn) {
		c.keyed = true
		c.all.put(c, tenant, true)
	})
}

// hasKey reports whether the request that is being served came with a key.
func (c *conn) hasKey() (keyed bool) {
	c.set(func(c *conn) { keyed = c.keyed })
	return keyed
}

// crowded returns the most requests that the tenant of a connection may have in progress,
// and whether it has more.
func (c *conn) crowded() (most int, more bool) {
	c.set(func(c *conn) {
		most = max(1, c.all.limit/2)
		more = c.all.of[c.tenant].busy.Len() > most
	})
	return most, more
}

// claimOf returns the claim to CPU slots for the work of a tenant.
func claimOf(t tenant.Tenant) guest.Claim {
	return guest.Claim{Tenant: t.ID, Weight: float64(t.Weight)}
}

// slotWait is how long a request waits for a slot of something that takes long.
const slotWait = 10 * time.Second

// enter waits until a request may begin something that takes long. Beside computing, these are
// compiling modules, replaying runs and following runs, each with slots of its own. A tenant that
// has most such requests is refused another one; zero or less sets no bound.
func enter(ctx context.Context, s *guest.Scheduler, t tenant.Tenant, most int) (leave func(), err error) {
	share.Of(ctx).Rest()
	claim := claimOf(t)
	claim.Crowd = max(most, 0)
	slot, err := s.Acquire(guest.WithClaim(ctx, claim))
	if errors.Is(err, guest.ErrCrowd) {
		return nil, rateLimited.because("%d such requests of the tenant are in progress", most).retry(time.Second)
	}
	if err != nil {
		return nil, err
	}
	return slot.Release, nil
}

// recent keeps the values that were used last, at most twice mostRecent. It forgets a value that was not
// used while mostRecent others were.
type recent[K comparable, V any] struct {
	mu       sync.Mutex
	now, old map[K]V // guarded by mu
}

const mostRecent = 10_000

// find returns the value of a key. Without one it keeps and returns what fresh returns, unless that is nil.
func (r *recent[K, V]) find(key K, fresh func() V) (value V, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if value, known = r.now[key]; known {
		return value, true
	}
	if value, known = r.old[key]; !known {
		if fresh == nil {
			return value, false
		}
		value = fresh()
	}
	if r.now == nil || len(r.now) >= mostRecent {
		r.now, r.old = map[K]V{}, r.now
	}
	r.now[key] = value
	return value, known
}

// rates bound how often tenants ask for something.
type rates struct{ limiters recent[string, *rate.Limiter] } // by tenant

// wait takes one of the most requests that a tenant may make in a period, possibly all at once, or
// returns how long to wait for the next one. A negative number sets no bound.
func (s *rates) wait(id string, most int, period time.Duration) time.Duration {
	if most < 0 {
		return 0
	}
	often := rate.Limit(float64(most) / period.Seconds())
	limiter, _ := s.limiters.find(id, func() *rate.Limiter { return rate.NewLimiter(often, most) })
	if limiter.Burst() != most { // the limit has changed
		limiter.SetLimit(often)
		limiter.SetBurst(most)
	}
	if limiter.Allow() {
		return 0
	}
	return max(period/time.Duration(max(most, 1)), time.Millisecond)
}
