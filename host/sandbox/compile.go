//go:build !js

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/tetratelabs/wazero/experimental"
)

// compile compiles a rewritten module into the empty folder dir, on the given number of
// processors: the code gets the name under which the engine looks for the module's
// shell, and is the same for any number.
func compile(ctx context.Context, processors int, rewritten, shell []byte, dir string) error {
	ctx = experimental.WithCompilationWorkers(ctx, processors)
	code, err := compileInto(ctx, rewritten, dir)
	if err != nil {
		return err
	}
	wanted, err := compileInto(ctx, shell, dir)
	if err != nil {
		return err
	}
	if err := inPieces(code, wanted); err != nil {
		return hostFailed(err)
	}
	return nil
}

// inPieces replaces the file wanted with the file code, in pieces. Nothing is removed
// that is open, which not every system allows.
func inPieces(code, wanted string) error {
	from, err := os.Open(code)
	if err != nil {
		return err
	}
	err = errors.Join(os.Remove(wanted), writePieces(wanted, from), from.Close())
	return errors.Join(err, os.Remove(code))
}

// compileInto makes the engine keep a module's code in dir and returns the file.
func compileInto(ctx context.Context, module []byte, dir string) (string, error) {
	before, err := files(dir)
	if err != nil {
		return "", hostFailed(err)
	}
	r, code, err := newRuntime(ctx, false, dir)
	if err != nil {
		return "", err
	}
	_, err = r.CompileModule(ctx, module)
	if _, ofFile := errors.AsType[syscall.Errno](err); ofFile {
		err = hostFailed(err)
	}
	if err := errors.Join(err, r.Close(ctx), code.Close(ctx)); err != nil {
		return "", err
	}
	after, err := files(dir)
	for _, file := range after {
		if !slices.Contains(before, file) {
			return file, nil
		}
	}
	return "", hostFailed(cmp.Or(err, errNoCode))
}
