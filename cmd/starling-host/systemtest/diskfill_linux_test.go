package systemtest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// smallDisk mounts a file system of that size, and makes a cluster that has all its files
// there.
func smallDisk(t *testing.T, bytes int64, tenants ...string) *cluster {
	t.Helper()
	skipShort(t)
	dir, err := os.MkdirTemp("", "disk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("SKIPPED: no small file system: %v; run the test as root", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	c := newClusterIn(t, dir, "host.db", closedPolicy, tenants...)
	c.env = []string{"TMPDIR=" + dir}
	return c
}

// padded is a command that prints 1, in a module of that size unlike any other.
func padded(size int) []byte {
	filler := make([]byte, size)
	rand.Read(filler[:64])
	return (&wasmtest.Module{
		Imports: []wasmtest.Import{{Module: abi.WASIModule, Name: "fd_write", Type: wasmtest.Type("iiii:i")}},
		Memory:  wasmtest.Pages(64),
		Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Funcs: []wasmtest.Func{{Export: "_start", Type: wasmtest.Type(":"), Code: new(wasm.Asm).
			I32(1).I32(0).I32(1).I32(16).Index(wasm.OpCall, 0).Op(wasm.OpDrop)}},
		Data: []wasmtest.Data{{Bytes: "\x08\x00\x00\x00\x01\x00\x00\x001"}, {Offset: 1 << 16, Bytes: string(filler)}},
	}).Bytes()
}

// fill uploads modules of 3.8 MB, calls every second one, and deletes some, as fast as the
// host takes it. It counts the answers to uploads by their type.
func (c *cluster) fill(who string, goesOn func(tries int) bool) map[string]int {
	counts := map[string]int{}
	for i := 0; goesOn(i); i++ {
		name := fmt.Sprintf("m%d", i%4)
		status, text, err := c.ask(who, "POST", "/api/v1/modules?name="+name, "application/wasm", padded(3_800_000))
		var problem struct{ Type string }
		switch {
		case c.t.Context().Err() != nil:
			return counts
		case err != nil:
			counts["lost"]++
			c.t.Errorf("an upload has no answer: %v", err)
		case status == http.StatusCreated:
			counts["uploaded"]++
			if i%2 == 0 {
				c.call(who, name, map[string]int{})
			}
		case json.Unmarshal(text, &problem) != nil || problem.Type == "":
			c.t.Errorf("upload: %d %s", status, text)
		default:
			_, kind, _ := strings.Cut(problem.Type, "#")
			counts[kind]++
			if kind == "internal" || kind == "unavailable" || kind == "module-refused" {
				c.t.Errorf("upload: %d %s", status, text)
			}
		}
		if i%5 > 0 {
			c.ask(who, "DELETE", "/api/v1/modules/"+name, "", nil)
		}
	}
	return counts
}

// TestModuleUploadsLeaveRoomOnTheDisk has five tenants upload modules to a small disk as fast as
// they may, in the nightly run ten for ten minutes, and another one call a tool. Every call
// succeeds, every upload that does not is refused with a reason, and what the tenants have
// stored is gone when they are.
func TestModuleUploadsLeaveRoomOnTheDisk(t *testing.T) {
	t.Parallel()
	size, goesOn, tenants := int64(152<<20), func(tries int) bool { return tries < 4 }, 5
	if os.Getenv("STARLING_NIGHTLY") != "" {
		size, tenants = 260<<20, 10
		ends := time.Now().Add(10 * time.Minute)
		goesOn = func(int) bool { return time.Now().Before(ends) }
	}
	bad := make([]string, tenants)
	for i := range bad {
		bad[i] = fmt.Sprintf("bad%d", i)
	}
	c := smallDisk(t, size, append(bad, "good")...)
	c.start("", nil)
	if status, text, err := c.ask("good", "POST", "/api/v1/modules?name=one", "application/wasm", padded(64)); err != nil || status != http.StatusCreated {
		t.Fatalf("%d %s %v", status, text, err)
	}
	used := func() int64 {
		room, err := guest.DiskRoomOf(c.dir)
		c.must(err)
		return room.Total - room.Free
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	uploads := map[string]int{}
	for _, who := range bad {
		all.Go(func() {
			counts := c.fill(who, goesOn)
			mu.Lock()
			defer mu.Unlock()
			for kind, n := range counts {
				uploads[kind] += n
			}
		})
	}
	filled := make(chan struct{})
	go func() { all.Wait(); close(filled) }()
	calls, slowest, most := 0, time.Duration(0), int64(0)
	for done := false; !done; calls++ {
		began := time.Now()
		if status, text, err := c.call("good", "one", map[string]int{}); err != nil || status != http.StatusOK {
			t.Fatalf("call %d: %d %s %v\n%s", calls, status, text, err, tail(c.stderr.String(), 3000))
		}
		slowest, most = max(slowest, time.Since(began)), max(most, used())
		select {
		case <-filled:
			done = true
		case <-time.After(200 * time.Millisecond):
		}
	}
	t.Logf("uploads: %v; %d calls, the slowest %v; at most %d MiB of %d used, at the end %d", uploads, calls, slowest, most>>20, size>>20, used()>>20)
	if uploads["uploaded"] == 0 || len(uploads) == 1 {
		t.Error("the disk was not filled")
	}
	c.stop()
	c.command("validate", "host.db", "--key-file", "host.key")
	before := used()
	for _, who := range bad {
		c.command("tenant", "erase", who, "--prune", "--yes", "--db", "host.db")
	}
	c.command("prune", "host.db", "--before", "2000-01-01T00:00:00Z", "--confirm", "--compact")
	t.Logf("after erase and prune %d of %d MiB are used", used()>>20, before>>20)
	info, err := os.Stat(c.path("host.db"))
	c.must(err)
	if runs := int64(calls) * 16 << 10; info.Size() > 4<<20+runs {
		t.Errorf("%d bytes of the database are left", info.Size())
	}
}

// TestAFullDiskIsServed fills the disk of an idle host to the last byte, as another
// program may. The host renews its leases, answers what needs no room, says that it is not
// ready, and takes runs again when there is room.
func TestAFullDiskIsServed(t *testing.T) {
	t.Parallel()
	c := smallDisk(t, 152<<20, "good")
	c.start("queue: {lease: 1s}\n", nil)
	if status, text, err := c.ask("good", "POST", "/api/v1/modules?name=one", "application/wasm", padded(64)); err != nil || status != http.StatusCreated {
		t.Fatalf("%d %s %v", status, text, err)
	}
	other, err := os.Create(c.path("other"))
	c.must(err)
	defer other.Close()
	for _, block := range []int{1 << 20, 1 << 12, 1} {
		for err = nil; err == nil; {
			_, err = other.Write(make([]byte, block))
		}
	}
	for ends := time.Now().Add(time.Second); time.Now().Before(ends); time.Sleep(100 * time.Millisecond) {
		for path, want := range map[string]int{"/api/v1/tools": 200, "/api/v1/runs": 200, "/api/v1/readyz": 503} {
			if status, text, err := c.ask("good", "GET", path, "", nil); err != nil || status != want {
				t.Fatalf("%s: %d %s %v\n%s", path, status, text, err, tail(c.stderr.String(), 2000))
			}
		}
		if status, text, err := c.call("good", "one", map[string]int{}); err != nil || status != http.StatusInsufficientStorage {
			t.Fatalf("%d %s %v", status, text, err)
		}
	}
	c.must(other.Truncate(0))
	if status, text, err := c.call("good", "one", map[string]int{}); err != nil || status != http.StatusOK {
		t.Errorf("%d %s %v", status, text, err)
	}
}
