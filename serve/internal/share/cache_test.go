package share

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestCacheIsBounded: as many values as there is room for, and a large one alone.
func TestCacheIsBounded(t *testing.T) {
	c := Cache[int, string]{Most: 100, For: time.Hour}
	for i := range 10 {
		c.Put(i, "value", 30)
		if c.Find(i) == "" || c.size != len(c.of)*30 || c.size > c.Most {
			t.Errorf("%d are kept, of %d bytes", len(c.of), c.size)
		}
	}
	c.Put(11, "large", 101)
	if len(c.of) != 1 || c.size != 101 || c.Find(11) != "large" {
		t.Errorf("%d are kept, of %d bytes", len(c.of), c.size)
	}
}

// TestCacheForgets: a value stays for its time at most, and not at all once it was taken.
func TestCacheForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Cache[string, int]{Most: 100, For: time.Minute}
		held := func() (values, bytes int) { // a timer may be about to change them
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.of), c.size
		}
		size := func() int { _, bytes := held(); return bytes }
		c.Put("alice", 1, 1)
		time.Sleep(30 * time.Second)
		c.Put("bob", 2, 1)
		c.Put("bob", 3, 2)
		if c.Find("alice") != 1 || c.Find("bob") != 3 || size() != 3 {
			t.Errorf("%d, %d, %d bytes", c.Find("alice"), c.Find("bob"), size())
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if c.Find("alice") != 0 || c.Find("bob") != 3 || size() != 2 {
			t.Errorf("after a minute: %d, %d, %d bytes", c.Find("alice"), c.Find("bob"), size())
		}
		if c.Take("bob") != 3 || c.Take("bob") != 0 || size() != 0 {
			t.Errorf("it is kept although it was taken, with %d bytes", size())
		}
		c.Put("bob", 4, 1)
		time.Sleep(31 * time.Second) // the time of the one before ends
		synctest.Wait()
		if c.Find("bob") != 4 {
			t.Error("it is not kept until its time ends")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if values, bytes := held(); values != 0 || bytes != 0 {
			t.Errorf("%d are kept, of %d bytes", values, bytes)
		}
	})
}
