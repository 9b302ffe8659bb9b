package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-host/starling/host/rewrite"
	"github.com/tetratelabs/wazero"
)

// openCache opens a folder of compiled code. Its entries are named after the
// rewritten bytes; the folders in between name the cost table, the engine's
// version and the processor (the engine adds the last two), so that no upgrade
// ever runs what an older one compiled.
func openCache(dir string) (wazero.CompilationCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("sandbox: compilation cache: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("sandbox: compilation cache: %w", err)
	}
	if err := checkPrivate(info); err != nil {
		return nil, fmt.Errorf("sandbox: compilation cache %s: %w: machine code is run from it, so nobody else may be able to write there", dir, err)
	}
	cache, err := wazero.NewCompilationCacheWithDir(filepath.Join(dir, fmt.Sprintf("cost-table-%d", rewrite.CostTableVersion)))
	if err != nil {
		return nil, fmt.Errorf("sandbox: compilation cache: %w", err)
	}
	return cache, nil
}
