// Documents measures what a host does around the work of a guest with a large document: in a
// run, a call over the HTTP API, a call through the gateway and a replay. What is reported is
// the processor time, as a multiple of what encoding/json takes to decode and encode the same
// document in the same round. The guest's own work is not in it, nor is that of the MCP SDK.
//
//	go run ./documents [-quick] [-out results/documents.md]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/starling-host/starling/bench/internal/figures"
	hostguest "github.com/starling-host/starling/host/guest"
)

func main() {
	hostguest.WorkerMain()
	quick := flag.Bool("quick", false, "one round: shows that it works, not how fast")
	out := flag.String("out", "", "file for the report (default: print only)")
	flag.Parse()
	rounds := 15
	if *quick {
		rounds = 1
	}
	if err := run(context.Background(), rounds, *out); err != nil {
		fmt.Fprintln(os.Stderr, "documents:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, out string) error {
	dir, err := os.MkdirTemp("", "starling-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ways, end, err := open(ctx, dir)
	if err != nil {
		return err
	}
	defer end()
	text, err := measure(ctx, ways, rounds)
	if err != nil {
		return err
	}
	fmt.Print(text)
	if out == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, []byte(text), 0o644)
}

// levels is how deep the nested document is.
const levels = 58

// Goals, as multiples of one decoding and encoding by encoding/json.
const (
	most       = 3.0
	mostNested = 1.3 * most
)

// documents returns 0.85 MB of records in an object, flat and inside of maps that have a
// second member each.
func documents() map[string][]byte {
	var records strings.Builder
	for i := range 5600 {
		fmt.Fprintf(&records, `{"id":%d,"name":"customer %d of the shop","email":"c%d@example.com","active":%t,"score":%d.25,"tags":["a","bc","def"],"address":{"city":"Berlin","zip":"%05d"}},`,
			i, i, i, i%3 == 0, i%100, i)
	}
	list := "[" + strings.TrimSuffix(records.String(), ",") + "]"
	nested := list
	for range levels {
		nested = `{"level":` + nested + `,"note":"x"}`
	}
	return map[string][]byte{"flat": []byte(`{"records":` + list + `}`), "nested": []byte(nested)}
}

// way is one way to have a document worked on.
type way struct {
	name string
	call func(ctx context.Context, doc []byte) error
	less func(ctx context.Context, doc []byte) error // work in it that does not count
}

// measure takes all ways in turns, with both documents.
func measure(ctx context.Context, ways []way, rounds int) (string, error) {
	docs := documents()
	ratios := map[string][]float64{}
	var decodes, sizes = map[string][]float64{}, ""
	for _, name := range []string{"flat", "nested"} {
		doc := docs[name]
		sizes += fmt.Sprintf(" %s %d bytes,", name, len(doc))
		for round := range rounds + 1 { // the first warms up
			base, err := processorTime(ctx, doc, decodeAndEncode)
			if err != nil {
				return "", err
			}
			for _, w := range ways {
				took, err := processorTime(ctx, doc, w.call)
				if err != nil {
					return "", fmt.Errorf("%s, %s: %w", w.name, name, err)
				}
				less, err := processorTime(ctx, doc, w.less)
				if err != nil {
					return "", fmt.Errorf("%s, %s, what is taken off: %w", w.name, name, err)
				}
				if round > 0 {
					ratios[name+w.name] = append(ratios[name+w.name], (took-less)/base)
				}
			}
			if round > 0 {
				decodes[name] = append(decodes[name], base)
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Medians on %s/%s, %d processors, %s. Documents:%s %d levels deep. encoding/json takes %.3g and %.3g ms.\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), strings.TrimSuffix(sizes, ","), levels, figures.Median(decodes["flat"]), figures.Median(decodes["nested"]))
	fmt.Fprintf(&b, "| processor time / encoding/json decoding and encoding | flat | goal | | nested | goal | |\n|---|--:|--:|---|--:|--:|---|\n")
	for _, w := range ways {
		flat, nested := figures.Median(ratios["flat"+w.name]), figures.Median(ratios["nested"+w.name])
		fmt.Fprintf(&b, "| %s | %.2f | <= %g | %s | %.2f | <= %.1f | %s |\n", w.name, flat, most, figures.Verdict(flat <= most), nested, mostNested, figures.Verdict(nested <= mostNested))
	}
	b.WriteString(passes)
	return b.String(), nil
}

// passes is counted by hand: a change of what is done with documents changes it.
const passes = `
Behind these times are passes over the flat document, or over an event that contains it. One parses,
encodes, decodes, checks or hashes all of it. Copies, comparisons, encryption, the guest and the MCP SDK
are not counted, nor are events of other documents.

| passes | parse, join or write JSON | check a schema | encode or decode CBOR | check CBOR | hash | sum |
|---|--:|--:|--:|--:|--:|--:|
| run | 3 | 1 | 4 | 3 | 6 | 17 |
| replay | 3 | 1 | 20 | 4 | 6 | 34 |
| API call | 4 | 2 | 9 | 6 | 12 | 33 |
| gateway call | 9 | 1 | 8 | 6 | 8 | 32 |
`

func decodeAndEncode(_ context.Context, doc []byte) error {
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		return err
	}
	_, err := json.Marshal(v)
	return err
}

// processorTime returns the milliseconds of this process, on all processors, for a call:
// collecting its garbage is in them, and waiting for the disk is not.
func processorTime(ctx context.Context, doc []byte, call func(context.Context, []byte) error) (float64, error) {
	runtime.GC() // of what was before
	var before, after syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		return 0, err
	}
	if err := call(ctx, doc); err != nil {
		return 0, err
	}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
		return 0, err
	}
	ms := func(r syscall.Rusage) float64 { return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e6 }
	return ms(after) - ms(before), nil
}
