// Command tool is a guest for the tests of package sandbox: one tool for each
// thing that a Go program can do to a host that has to stay deterministic.
// It is written against the contract itself, without an SDK.
package main

import (
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/starling-host/starling/abi"
)

func main() {}

//go:wasmimport starling:v1 now
func now() int64

//go:wasmimport starling:v1 random
func random() uint64

//go:wasmimport starling:v1 http
func http(request unsafe.Pointer, length uint32, buf unsafe.Pointer, capacity uint32) int64

// room keeps what the host was given alive.
var room []byte

//go:wasmexport starling_alloc
func alloc(n uint32) unsafe.Pointer {
	room = make([]byte, max(n, 1))
	return unsafe.Pointer(&room[0])
}

//go:wasmexport starling_describe
func describe() uint64 {
	names := slices.Sorted(maps.Keys(tools))
	return pack(map[string]any{"tools": names, "time": time.Now().UTC(), "random": rand.Uint64()})
}

//go:wasmexport starling_execute
func execute(ptr, length uint32) uint64 {
	var in abi.Input
	if err := json.Unmarshal(room[:length], &in); err != nil {
		return pack(map[string]any{"error": abi.Error{Kind: abi.ErrorDiscard, Message: err.Error()}})
	}
	return pack(map[string]any{"output": tools[in.Tool](in.Input)})
}

func pack(document any) uint64 {
	room, _ = json.Marshal(document)
	return abi.Pack(uint32(uintptr(unsafe.Pointer(&room[0]))), uint32(len(room)))
}

var tools = map[string]func(input []byte) any{
	"echo":       func(input []byte) any { return string(input) },
	"clock":      clock,
	"sleep":      sleep,
	"random":     randomness,
	"maps":       mapOrder,
	"goroutines": goroutines,
	"garbage":    garbage,
	"world":      world,
	"print":      print,
	"flood":      flood,
	"fetch":      fetch,
	"panic":      func([]byte) any { panic("the tool has a bug") },
	"nil":        func([]byte) any { var p *int; return *p },
	"recovered":  recovered,
	"exit":       func([]byte) any { os.Exit(3); return nil },
	"deadlock":   func([]byte) any { select {} },
	"spin": func([]byte) any {
		for {
		}
	},
	"work":    work,
	"recurse": func([]byte) any { return recurse(1) },
	"hoard":   hoard,
	"big":     func([]byte) any { return strings.Repeat("x", 2<<20) },
}

func clock([]byte) any {
	first := time.Now()
	second := time.Now()
	return []any{first.UTC(), second.Sub(first), second.After(first), now() >= second.UnixNano(), time.Now().UTC()}
}

func sleep([]byte) any {
	before := time.Now()
	time.Sleep(90 * time.Minute)
	timer := time.NewTimer(24 * time.Hour)
	ticks := 0
	for ticker := time.NewTicker(8 * time.Hour); ; ticks++ {
		select {
		case <-ticker.C:
			continue
		case <-timer.C:
		}
		return []any{time.Since(before).Round(time.Minute).String(), ticks}
	}
}

func randomness([]byte) any {
	secret := make([]byte, 100_000)
	crand.Read(secret)
	return []any{rand.Uint64(), rand.IntN(1000), random(), fmt.Sprintf("%x", secret[99_980:])}
}

func mapOrder([]byte) any {
	m := map[string]int{}
	for i := range 50 {
		m[fmt.Sprint(i)] = i
	}
	var order []int
	for _, v := range m {
		order = append(order, v)
	}
	return []any{order, fmt.Sprintf("%p", &order[0])}
}

func goroutines([]byte) any {
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	results := make(chan int)
	for i := range 20 {
		wg.Go(func() {
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			results <- i * i
		})
	}
	go func() { wg.Wait(); close(results) }()
	sum := 0
	for r := range results {
		sum += r
	}
	return []any{order, sum}
}

func garbage([]byte) any {
	var kept [][]byte
	for i := range 20_000 {
		if b := make([]byte, 1000); i%1000 == 0 {
			kept = append(kept, b)
		}
	}
	runtime.GC()
	return len(kept)
}

// work does a bit of everything: maps, JSON, hashes, floats and sorting.
func work(input []byte) any {
	var rounds int
	json.Unmarshal(input, &rounds)
	sum := sha256.Sum256(nil)
	for i := range rounds {
		m := map[string]any{}
		for j := range 40 {
			m[fmt.Sprintf("key%d", (i*j)%97)] = map[string]any{"number": float64(i) / float64(j+1), "text": hex.EncodeToString(sum[:])}
		}
		text, _ := json.Marshal(m)
		var back map[string]any
		json.Unmarshal(text, &back)
		words := strings.Split(string(text), ",")
		slices.Sort(words)
		sum = sha256.Sum256([]byte(strings.Join(words, "")))
	}
	return hex.EncodeToString(sum[:])
}

func world([]byte) any {
	_, file := os.ReadFile("/etc/passwd")
	_, dir := os.ReadDir("/")
	_, made := os.Create("/tmp/x")
	wd, at := os.Getwd()
	_, dial := net.Dial("tcp", "127.0.0.1:80")
	_, listen := net.Listen("tcp", "127.0.0.1:0")
	_, lookup := net.LookupHost("localhost")
	_, zone := time.LoadLocation("Europe/Berlin")
	return []string{
		fmt.Sprint(os.Args), fmt.Sprint(os.Environ()), os.Getenv("HOME"), wd,
		text(file), fmt.Sprint(os.IsNotExist(file)), text(dir), text(made), text(at), text(dial), text(listen), text(lookup), text(zone),
	}
}

func text(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

func print([]byte) any {
	fmt.Println("to the log")
	fmt.Fprintln(os.Stderr, "to the log as well")
	os.Stdout.Write([]byte("not \xff\xfe text\n"))
	var line string
	n, err := fmt.Scanln(&line)
	return []any{n, text(err)}
}

func flood([]byte) any {
	for i := range 20_000 {
		fmt.Println("line", i)
	}
	return nil
}

func fetch(input []byte) any {
	var request string
	json.Unmarshal(input, &request)
	buf := make([]byte, 8)
	n := http(unsafe.Pointer(unsafe.StringData(request)), uint32(len(request)), unsafe.Pointer(&buf[0]), uint32(len(buf)))
	if n > int64(len(buf)) {
		buf = make([]byte, n)
		http(nil, 0, unsafe.Pointer(&buf[0]), uint32(len(buf)))
	}
	return []any{n, string(buf)}
}

func recovered([]byte) (result any) {
	defer func() { result = fmt.Sprint(recover()) }()
	var m map[string]int
	m["a"] = 1
	return nil
}

//go:noinline
func recurse(n int) int {
	if n == 0 {
		return 0
	}
	return recurse(n+1) + 1
}

func hoard([]byte) any {
	var all [][]byte
	for {
		all = append(all, make([]byte, 1<<20))
	}
}
