package registry

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// cFlags decide the bytes of a tool in C. Assembly could include any file without listing it,
// and the date is not in the folder. Mistakes that a newer clang refuses are errors for all.
var cFlags = []string{"--target=wasm32-wasi", "-O2", "-fno-gnu-inline-asm", "-Werror=date-time",
	"-Werror=implicit-function-declaration", "-Werror=int-conversion", "-Werror=incompatible-function-pointer-types", "-Werror=return-type"}

// findC looks for clang and returns its version.
func (n *native) findC(ctx context.Context) (version string, err error) {
	if n.path, err = exec.LookPath("clang"); err != nil {
		return "", n.missingC("clang, and there is none in PATH")
	}
	out, err := n.run(ctx, "--version")
	return string(out), err
}

// compileC compiles the files *.c of the folder, but *_test.c, and links them with the C
// library for WASI. They may include the headers of the folder, of clang and of that library.
func (n *native) compileC(ctx context.Context) error {
	list := filepath.Join(n.work, "list.d")
	system, err := n.run(ctx, slices.Concat(cFlags, []string{"-M", "-xc", "-include", "wasi/api.h", "-include", "stddef.h", os.DevNull})...)
	if err != nil {
		return n.withoutC(err)
	}
	folders := []string{n.dir}
	for _, file := range strings.Fields(string(system)) {
		for _, header := range []string{"/wasi/api.h", "/stddef.h"} {
			folder, found := strings.CutSuffix(filepath.ToSlash(file), header)
			if folder, err := filepath.EvalSymlinks(folder); found && err == nil {
				folders = append(folders, folder)
			}
		}
	}
	parts, programs := slices.Clone(folders), []string{}
	for _, print := range []string{"-print-file-name=libc.a", "-print-file-name=crt1-reactor.o", "-print-libgcc-file-name", "-print-prog-name=wasm-ld", "-print-prog-name=wasm-opt"} { // clang runs wasm-opt where it finds it
		out, err := n.run(ctx, append(slices.Clone(cFlags), print)...)
		if err != nil {
			return n.withoutC(err)
		}
		if path := strings.TrimSpace(string(out)); strings.HasPrefix(print, "-print-prog") {
			programs = append(programs, path)
			n.env = []string{"PATH=" + filepath.Dir(path)} // of the linker, and of no package of another program
		} else if filepath.IsAbs(path) {
			parts = append(parts, filepath.Dir(path))
		}
	}
	if err := n.confine(ctx, n.work, programs, parts...); err != nil {
		return err
	}
	sources, err := fs.Glob(os.DirFS(n.dir), "*.c")
	if err != nil {
		return err
	}
	var objects []string
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.c") {
			continue
		}
		source, object := filepath.Join(n.dir, name), filepath.Join(n.work, name+".o")
		objects = append(objects, object)
		if _, err := n.run(ctx, slices.Concat(cFlags, []string{"-g", "-ffile-prefix-map=" + n.dir + "=.", "-MD", "-MF", list, "-c", "-o", object, source})...); err != nil {
			return n.withoutC(err)
		}
		if err := n.checkRead(list, folders...); err != nil {
			return err
		}
	}
	_, err = n.run(ctx, slices.Concat(cFlags, objects, []string{"-mexec-model=reactor", "-o", n.out})...)
	return n.withoutC(err)
}

// withoutC turns a failure for want of a part of the compiler into one that brings the part.
func (n *native) withoutC(err error) error {
	if failed, ok := errors.AsType[*Error](err); ok {
		if said := regexp.MustCompile(`(wasi/api\.h|libclang_rt\S*|crt1\S*|wasm-ld\S*) ?.*(not found|No such file|doesn't exist|cannot open)|unable to create target`).FindString(failed.Output); said != "" {
			return n.missingC("a complete clang for WASI; it reports: " + said)
		}
	}
	return err
}

func (n *native) missingC(what string) error {
	return n.missing(what, "apt-get install clang lld wasi-libc libclang-rt-dev-wasm32", "dnf install clang lld wasi-libc-devel compiler-rt",
		"pacman -S clang lld wasi-libc wasi-compiler-rt", "brew install llvm lld wasi-libc wasi-runtimes")
}
