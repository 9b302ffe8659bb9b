//go:build !js

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"syscall"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/work"
	"github.com/tetratelabs/wazero/experimental"
)

// Compile compiles a rewritten module into the empty folder dir: the code gets the
// name under which the engine looks for the module's rewrite.Shell. If the engine
// refuses the module or panics, the error is a *rewrite.Refusal: the process lives,
// because panics are recovered in this goroutine, and it compiles in no other one.
func Compile(ctx context.Context, rewritten []byte, dir string) error {
	return accepted(func() error { return compileOn(ctx, 1, rewritten, dir) })
}

// CompileAlone is Compile on all processors, for a process that does nothing else: a
// panic of the engine kills it. An error that is not abi.ErrHost is the engine's
// reason to refuse the module.
func CompileAlone(ctx context.Context, rewritten []byte, dir string) error {
	return compileOn(ctx, runtime.GOMAXPROCS(0), rewritten, dir)
}

// compileOn compiles on the given number of processors. The code is the same for any number.
func compileOn(ctx context.Context, processors int, rewritten []byte, dir string) error {
	ctx = experimental.WithCompilationWorkers(ctx, processors)
	shell, err := rewrite.Shell(work.For(ctx, len(rewritten)), rewritten)
	if err != nil {
		return err
	}
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
