package worker

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// Concurrent calls are told apart, and each gets its own answer.
func TestWorkerConcurrentCalls(t *testing.T) {
	e := workers(t, Config{MaxCalls: 4, MaxIdle: 2})
	here := mustLoad(t, inline(t), asksForTheTime().Bytes(), sandbox.Limits{})
	want, _ := observe(t, here, sandbox.Call{Input: []byte("x")}, &world{})
	modules := []*Module{}
	for range 2 {
		modules = append(modules, mustLoad(t, e, asksForTheTime().Bytes(), sandbox.Limits{}).(*Module))
	}
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			for range 10 {
				got, err := modules[n%2].Call(t.Context(), sandbox.Call{Input: []byte("x")}, &world{})
				if err != nil || string(got.Output) != want.Output || got.Meter != want.Meter {
					t.Errorf("got %+v, %v", got, err)
				}
			}
		})
	}
	group.Wait()
	if n := len(children(t)); n > 6 {
		t.Errorf("%d processes", n)
	}
}

// TestThreadsEndWithTheirProcesses: each process has its own thread of the host,
// which must end with it.
func TestThreadsEndWithTheirProcesses(t *testing.T) {
	const processes = 12
	e := workers(t, Config{MaxCalls: processes, MaxIdle: processes})
	m := mustLoad(t, e, tiny().Bytes(), sandbox.Limits{}).(*Module)
	for range processes - 1 { // and the process started to load it
		p, err := m.start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.giveBack(p)
	}
	before := threads(t)
	m.Close(t.Context())
	for deadline := time.Now().Add(time.Minute); threads(t) > before-processes/2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d threads with %d processes, %d without", before, processes, threads(t))
		}
	}
}

// threads returns how many threads this process has.
func threads(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skip("SKIPPED: needs /proc")
	}
	return len(all)
}

// TestHostForAWhile is a host that another test kills.
func TestHostForAWhile(t *testing.T) {
	if os.Getenv("WORKER_TEST_HOST") == "" {
		return
	}
	m := mustLoad(t, workers(t, Config{}), spins().Bytes(), sandbox.Limits{})
	time.AfterFunc(50*time.Millisecond, func() {
		for pid := range children(t) {
			fmt.Println("WORKER", pid)
		}
	})
	m.Call(context.Background(), sandbox.Call{Input: []byte("x")}, quiet{})
}

func TestWorkersEndWithAHostThatIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: needs /proc")
	}
	host := exec.Command("/proc/self/exe", "-test.run=^TestHostForAWhile$", "-test.v")
	host.Env = append(os.Environ(), "WORKER_TEST_HOST=1")
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	pid := 0
	for pid == 0 && lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "WORKER "); ok {
			pid, _ = strconv.Atoi(text)
		}
	}
	if err := host.Process.Kill(); err != nil || pid == 0 {
		t.Fatalf("worker %d, %v", pid, err)
	}
	host.Wait()
	// A demoted call ends once the processors are idle.
	for deadline := time.Now().Add(time.Minute); running(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the worker is still there")
		}
	}
}

// running reports whether a process exists and is not a zombie.
func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	return after[0] != "Z"
}

// A worker has no environment and no files but its pipes.
func TestAWorkerHasNothingButItsPipes(t *testing.T) {
	t.Setenv("STARLING_SECRET", "secret")
	e := workers(t, Config{})
	mustLoad(t, e, tiny().Bytes(), sandbox.Limits{})
	for pid := range children(t) {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			t.Skipf("SKIPPED: %v", err)
		}
		if !strings.HasPrefix(string(environment), mark+"=") || strings.Count(string(environment), "\x00") != 1 {
			t.Errorf("the environment is %q", environment)
		}
	}
}

// TestSizeIsOfWhatIsKept: the size of a module that grows when rewritten is its size after
// that; the part sent to processes lacks its functions.
func TestSizeIsOfWhatIsKept(t *testing.T) {
	grows := tiny()
	code := new(wasm.Asm)
	for range 500 {
		code.Block(wasm.OpLoop, wasm.BlockEmpty).Op(wasm.OpEnd)
	}
	for range 20 {
		grows.Funcs = append(grows.Funcs, wasmtest.Func{Type: wasmtest.Type(":"), Code: code})
	}
	if m := mustLoad(t, inline(t), grows.Bytes(), sandbox.Limits{}); m.Size() < 2*len(grows.Bytes()) {
		t.Errorf("the size of a module of %d bytes is %d", len(grows.Bytes()), m.Size())
	}
	if m := mustLoad(t, workers(t, Config{}), grows.Bytes(), sandbox.Limits{}); m.Size() == 0 || m.Size() > len(grows.Bytes())/10 {
		t.Errorf("in processes, the size of a module of %d bytes is %d", len(grows.Bytes()), m.Size())
	}
	if m := mustLoad(t, workers(t, Config{Machine: true}), grows.Bytes(), sandbox.Limits{}); m.Size() < 2*len(grows.Bytes()) {
		t.Errorf("in processes that interpret, the size of a module of %d bytes is %d", len(grows.Bytes()), m.Size())
	}
}
