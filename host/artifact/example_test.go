package artifact_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-host/starling/host/artifact"
)

// A tool is handed over in a folder. The name without the digest is pinned by its first use.
func ExampleFinder() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	f := artifact.Finder{Cache: filepath.Join(dir, "cache"), Lock: filepath.Join(dir, artifact.LockName)}
	name := "oci-layout:" + filepath.Join(dir, "shared") + ":dice-1.0"
	pinned, err := f.Push(context.Background(), name, []byte("\x00asm\x01\x00\x00\x00"), nil)
	if err != nil {
		panic(err)
	}
	source, err := f.Find(context.Background(), name)
	fmt.Println(source.Name, len(source.Wasm), source.Source == pinned, err)
	// Output: dice-1.0 8 true <nil>
}
