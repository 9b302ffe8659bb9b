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

// privateMemory returns what one pooled instance keeps for itself after its
// calls: the pages that it does not share with the image, and its part of the
// Go heap. Zero where the kernel does not tell.
func privateMemory(ctx context.Context, g guest) (float64, error) {
	before, _ := mappings()
	c, err := starling(ours, "")(ctx, g)
	if err != nil {
		return 0, err
	}
	defer c.close()
	one, err := ready(c)
	if err != nil {
		return 0, err
	}
	heap := heapBytes()
	first, _ := mappings()
	if err := together(one, 4*runtime.NumCPU()); err != nil {
		return 0, err
	}
	after, bytes := mappings()
	instances := after - before
	if instances == 0 || after == first {
		return 0, nil
	}
	own := float64(heapBytes()-heap) / float64(after-first)
	return float64(bytes)/float64(instances) + max(own, 0), nil
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
func mappings() (n, private int) {
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
		switch m, _ := fmt.Sscanf(line, "%x-%x rw-p", &from, &to); {
		case m == 2 && strings.Contains(line, imageName):
			n, end = n+1, to
		case m == 2 && from != end:
			end = 0
		case end != 0 && strings.HasPrefix(line, "Anonymous:"):
			fmt.Sscanf(line, "Anonymous: %d kB", &kib)
			private += kib << 10
		}
	}
	return n, private
}
