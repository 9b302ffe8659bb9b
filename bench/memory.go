package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
)

// imageName is how the kernel names the memory from which instances begin.
const imageName = "memfd:starling-image"

// private is what one pooled instance keeps for itself after its calls, in bytes.
type private struct {
	linear float64 // pages of linear memory that are not the image's any more
	heap   float64 // of Go: the engine's stacks and tables
}

// privateMemory measures it. It is zero where the kernel does not tell.
func privateMemory(ctx context.Context, g guest) (private, error) {
	if _, err := instanceMemory(ctx, g); err != nil {
		return private{}, err
	}
	return instanceMemory(ctx, g) // without what Go itself keeps of so many threads
}

func instanceMemory(ctx context.Context, g guest) (private, error) {
	before, _ := mappings()
	c, err := starling(ours, "")(ctx, g)
	if err != nil {
		return private{}, err
	}
	defer c.close()
	one, err := ready(c)
	if err != nil {
		return private{}, err
	}
	heap := heapBytes()
	first, _ := mappings()
	if err := together(one, 4*runtime.NumCPU()); err != nil {
		return private{}, err
	}
	after, bytes := mappings()
	instances := after - before
	if instances == 0 || after == first {
		return private{}, nil
	}
	own := float64(heapBytes()-heap) / float64(after-first)
	return private{linear: float64(bytes) / float64(instances), heap: max(own, 0)}, nil
}

// together makes calls on so many threads that many instances are in use at a
// time.
func together(one call, threads int) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
	errs := make(chan error, threads)
	var group sync.WaitGroup
	for range threads {
		group.Go(func() {
			for range 20_000 / threads * 10 {
				if _, err := one(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	return <-errs
}

func heapBytes() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// mappings counts the instances' mappings in this process, and the bytes of them
// that are not the image's. An instance has one of the image, and behind it the
// memory into which it can grow.
func mappings() (n, bytes int) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	var end uint64 // of the image's mapping, while its instance is read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		var from, to uint64
		var kib int
		switch m, _ := fmt.Sscanf(line, "%x-%x", &from, &to); {
		case m == 2 && strings.Contains(line, " rw-p ") && strings.Contains(line, imageName):
			n, end = n+1, to
		case m == 2 && from != end:
			end = 0
		case end != 0 && strings.HasPrefix(line, "Anonymous:"):
			fmt.Sscanf(line, "Anonymous: %d kB", &kib)
			bytes += kib << 10
		}
	}
	return n, bytes
}
