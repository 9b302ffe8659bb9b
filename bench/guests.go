package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/starling-host/starling/bench/guests"
)

// guest is a program in the two forms in which hosts take it.
type guest struct {
	name   string
	wasm   []byte // speaks starling:v1; the exports alone are all that raw engines need
	extism []byte
	init   bool // a reactor: _initialize runs first
}

// loadGuests returns the guests, from the smallest. The Go ones are built.
func loadGuests() ([]guest, error) {
	dir, err := os.MkdirTemp("", "starling-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var all []guest
	for _, g := range []struct {
		name  string
		build bool
		init  bool
	}{{"tiny", false, false}, {"cjson", false, true}, {"rustjson", false, false}, {"gomin", true, true}, {"gojson", true, true}} {
		load := committed
		if g.build {
			load = func(name string) ([]byte, error) { return built(dir, name) }
		}
		loaded := guest{name: g.name, init: g.init}
		if loaded.wasm, err = load(g.name); err != nil {
			return nil, err
		}
		if loaded.extism, err = load(g.name + "-extism"); err != nil {
			return nil, err
		}
		all = append(all, loaded)
	}
	return all, nil
}

func committed(name string) ([]byte, error) { return guests.Wasm.ReadFile(name + ".wasm") }

// built compiles a Go guest, for Extism when its name says so.
func built(dir, name string) ([]byte, error) {
	out := filepath.Join(dir, name+".wasm")
	args := []string{"build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", out}
	source := name
	if cut := len(name) - len("-extism"); cut > 0 && name[cut:] == "-extism" {
		source = name[:cut]
		args = append(args, "-tags", "extism")
	}
	cmd := exec.Command("go", append(args, "./guests/go/"+source)...)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building %s: %w\n%s", name, err, text)
	}
	return os.ReadFile(out)
}

// document is the input of every call: 256 bytes of JSON.
var document = []byte(`{"order":4711,"customer":{"id":42,"name":"Ada Lovelace","vip":true},"items":[{"sku":"A-1","n":2,"price":19.95},{"sku":"B-22","n":1,"price":249.5},{"sku":"C-333","n":12,"price":0.75}],"note":"leave it at the door, please","coupon":null,"discount":-2.5e-1}`)
