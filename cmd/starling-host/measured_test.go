package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// measuredHost is starling-host, and listens at measure.sock for requests about what it uses of its machine.
// A test of package systemtest starts it, which describes the numbers.
func measuredHost() {
	l, err := net.Listen("unix", "measure.sock")
	if err != nil {
		panic(err)
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stacks" {
			pprof.Lookup("goroutine").WriteTo(w, 1)
			return
		}
		json.NewEncoder(w).Encode(used())
	}))
	main()
}

// used returns what this process uses after it has given back all that it can do without.
func used() map[string]int {
	runtime.GC() // what has a finalizer goes with the next one
	debug.FreeOSMemory()
	before := status("self", "RssAnon")
	tls := libc.NewTLS()
	defer tls.Close()
	sqlite3.Xsqlite3_release_memory(tls, 1<<30)
	memory := status("self", "RssAnon")
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	descriptors, _ := os.ReadDir("/proc/self/fd")
	u := map[string]int{
		"Memory": memory, "Cache": before - memory, "Heap": int(m.HeapAlloc),
		"Threads": status("self", "Threads"), "Goroutines": runtime.NumGoroutine(), "Descriptors": len(descriptors),
	}
	for _, d := range descriptors {
		if file, _ := os.Readlink("/proc/self/fd/" + d.Name()); strings.Contains(file, "/starling-host/compiled/") {
			u["Code"]++
		}
	}
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(text)) {
			u["Workers"]++
			u["WorkerBytes"] += status(child, "RssAnon")
		}
	}
	return u
}

// status returns a number of /proc/PID/status, kilobytes as bytes.
func status(pid, field string) int {
	text, _ := os.ReadFile("/proc/" + pid + "/status")
	found := regexp.MustCompile(`(?m)^` + field + `:\s+(\d+)( kB)?$`).FindSubmatch(text)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(found[1]))
	if len(found[2]) > 0 {
		n <<= 10
	}
	return n
}
