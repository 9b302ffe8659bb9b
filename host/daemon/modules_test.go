package daemon_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/starling-host/starling/host/daemon"
	"github.com/starling-host/starling/host/queue"
)

// TestUploadsToTwoHostsMeet uploads modules with the same tool to two hosts at the same
// time: one of them has it.
func TestUploadsToTwoHostsMeet(t *testing.T) {
	var config *daemon.Config
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) { config = c })
	second, err := daemon.New(t.Context(), *config)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	other := *w
	other.daemon = second
	for i := range 10 {
		wasm := answering(fmt.Sprint("tool", i), `{"type":"object"}`, `{"output":1}`)
		var codes [2]int
		var both sync.WaitGroup
		for n, host := range []*world{w, &other} {
			both.Go(func() {
				codes[n] = host.do("alice", "POST", fmt.Sprintf("/api/v1/modules?name=m%d-%d", i, n), "application/wasm", wasm).Code
			})
		}
		both.Wait()
		if codes != [2]int{http.StatusCreated, http.StatusConflict} && codes != [2]int{http.StatusConflict, http.StatusCreated} {
			t.Errorf("round %d: %v", i, codes)
		}
	}
}
