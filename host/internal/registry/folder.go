package registry

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/starling-host/starling/internal/keyfile"
)

// folder reads the files of a tool's folder, and no others. Links are followed first.
type folder struct {
	root string // all links followed

	mu   sync.Mutex
	size int64 // of what was read
}

// maxSources bounds the sources of a build together, in bytes.
const maxSources = 64 << 20

// refusal is the reason why a build does not read a file.
type refusal struct{ reason, hint string }

func (r *refusal) Error() string { return r.reason }

func outside(real string) error {
	return &refusal{"the tool takes " + real + ", which is outside of its folder", "copy it into the folder"}
}

// checkName refuses names that a list of files or a message could show as something else.
func checkName(name string) error {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return &refusal{fmt.Sprintf("the name of the file %q has a control character", name), "rename it"}
	}
	return nil
}

// read returns the content of a file. The error is a [*refusal] if a build must not read it.
func (f *folder) read(path string) ([]byte, error) {
	wrong := func(err error) error {
		if at, ok := errors.AsType[*os.PathError](err); ok {
			err = at.Err
		}
		return fmt.Errorf("%s cannot be read: %w", path, err)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, wrong(err)
	}
	if !within(f.root, real) {
		return nil, outside(real)
	}
	if err := checkName(strings.TrimPrefix(path, f.root+string(filepath.Separator))); err != nil {
		return nil, err
	}
	file, err := keyfile.Open(real)
	if err != nil {
		return nil, wrong(err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxSources+1))
	if err != nil {
		return nil, wrong(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size += int64(len(content)) + 1<<10; f.size > maxSources { // which bounds empty files, too
		return nil, &refusal{fmt.Sprintf("the files of the tool have more than %d MiB", maxSources>>20), "give the folder of the tool alone, and keep data out of it"}
	}
	return content, nil
}

// within reports whether a path is folder or inside it.
func within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}
