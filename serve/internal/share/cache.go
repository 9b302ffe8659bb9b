package share

import (
	"sync"
	"time"
)

// Cache keeps values in memory by their keys, each for a time, and together at most so many bytes. A
// value that has more than that is kept alone.
type Cache[K comparable, V any] struct {
	Most int // bytes
	For  time.Duration

	mu   sync.Mutex // guards what follows
	of   map[K]cached[V]
	size int // bytes of all
	puts int
}

type cached[V any] struct {
	value     V
	size, put int
}

// Find returns the value of a key, or the zero value.
func (c *Cache[K, V]) Find(key K) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[key].value
}

// Take removes the value of a key, and returns it.
func (c *Cache[K, V]) Take(key K) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drop(key)
}

// Put keeps a value of a size in place of the earlier one of its key, and of others if it needs their room.
func (c *Cache[K, V]) Put(key K, value V, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(key)
	for other := range c.of {
		if c.size+size > c.Most {
			c.drop(other)
		}
	}
	if c.of == nil {
		c.of = map[K]cached[V]{}
	}
	c.puts++
	put := c.puts
	c.of[key] = cached[V]{value, size, put}
	c.size += size
	time.AfterFunc(c.For, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.of[key].put == put {
			c.drop(key)
		}
	})
}

// drop removes the value of a key, if there is one. The caller holds mu.
func (c *Cache[K, V]) drop(key K) V {
	k := c.of[key]
	c.size -= k.size
	delete(c.of, key)
	return k.value
}
