package registry

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/starling-host/starling/host/internal/jail"
	"github.com/starling-host/starling/internal/lazy"
)

// confine makes the kernel confine the command, from here on: it may execute itself and the
// programs, read what it and they are linked with and the parts, and write the folder work, where
// its temporary files are. It has no network. Parts and programs that are missing are left out.
func (t *toolchain) confine(ctx context.Context, work string, programs []string, parts ...string) error {
	if !jail.Confines() {
		return nil
	}
	cell := &jail.Config{Write: []string{work, os.DevNull}, Read: []string{"/dev/urandom"}}
	for _, part := range parts {
		if real, err := filepath.EvalSymlinks(part); err == nil && filepath.IsAbs(part) {
			cell.Read = append(cell.Read, real)
		}
	}
	for _, path := range append([]string{t.path}, programs...) {
		real, err := filepath.EvalSymlinks(path)
		info, missing := os.Stat(path)
		if err != nil || missing != nil || !info.Mode().IsRegular() || !filepath.IsAbs(path) {
			continue
		}
		linked, err := linkedWith(ctx, real)
		if errors.As(err, new(*elf.FormatError)) && path == t.path {
			return &Error{Ref: t.ref, Reason: path + " is not a compiler but a script that starts one, and a build is confined to the compiler", Hint: "put the folder of the compiler itself first in PATH"}
		} else if err != nil {
			return fmt.Errorf("registry: %s: %w", path, err)
		}
		cell.Load = append(append(cell.Load, real), linked...)
	}
	slices.Sort(cell.Load)
	cell.Load = slices.Compact(cell.Load)
	t.cell = cell
	t.env = append(slices.Clone(t.env), "TMPDIR="+work, "OPENSSL_CONF="+os.DevNull)
	return nil
}

// confineGo confines the Go command, which has listed and fetched what the tool needs by now. It reads
// the folders that the key is of, and keeps the packages that it compiles in its own cache.
func (t *toolchain) confineGo(ctx context.Context, k keyText, work string) error {
	if command := filepath.Join(k.goroot, "bin", "go"); jail.Confines() {
		if _, err := os.Stat(command); err == nil { // the one of PATH may be a script that starts it
			t.path = command
		}
	}
	work, err := filepath.EvalSymlinks(work)
	if err == nil {
		err = os.MkdirAll(k.gocache, 0o700)
	}
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	if err := t.confine(ctx, work, nil, append(slices.Collect(maps.Keys(k.bases)), k.modcache, k.goenv)...); err != nil || t.cell == nil {
		return err
	}
	t.cell.Write = append(t.cell.Write, k.gocache)
	for _, pattern := range []string{"", "*"} { // some distributions link to the folders in it
		names, _ := filepath.Glob(filepath.Join(k.goroot, pattern))
		for _, name := range names {
			if real, err := filepath.EvalSymlinks(name); err == nil {
				t.cell.Load = append(t.cell.Load, real)
			}
		}
	}
	t.env = append(t.env, "GOTMPDIR="+work, "GOPROXY=off")
	return nil
}

// library matches a file in the list of a dynamic linker: "NAME => FILE (ADDRESS)", or without NAME.
var library = lazy.Regexp(`(?:^|=> |\t)(/.*) \(0x[0-9a-f]+\)$`)

// linkedWith returns the dynamic linker of a program and the libraries that it loads.
func linkedWith(ctx context.Context, program string) (files []string, err error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, min(p.Filesz, 4096))
		if _, err := p.ReadAt(name, 0); err != nil {
			return nil, err
		}
		linker := string(bytes.TrimRight(name, "\x00"))
		list, err := exec.CommandContext(ctx, linker, "--list", program).Output()
		if err != nil {
			return nil, fmt.Errorf("its libraries: %w", err)
		}
		files = append(files, linker)
		for lines := bufio.NewScanner(bytes.NewReader(list)); lines.Scan(); {
			if found := library().FindStringSubmatch(lines.Text()); found != nil {
				files = append(files, found[1])
			}
		}
	}
	return files, nil
}
