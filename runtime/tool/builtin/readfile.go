package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// maxFileBytes bounds a file that ReadFile reads.
const maxFileBytes = 1 << 20

type readInput struct {
	Path string `json:"path" jsonschema:"description=Path of the file, relative to the folder"`
}

type readOutput struct {
	Content string `json:"content"`
}

// ReadFile returns the tool "read_file", which reads text files of at most
// 1 MiB below baseDir. It refuses absolute paths, "..", and symbolic links that
// lead out of the folder. The error is that of opening baseDir.
//
// The folder stays open as long as the tool is in use.
func ReadFile(baseDir string) (tool.Tool, error) {
	root, err := os.OpenRoot(baseDir)
	if err != nil {
		return nil, fmt.Errorf("builtin: %w", err)
	}
	return readFile(root), nil
}

func readFile(root *os.Root) tool.Tool {
	return tool.WithSource(tool.Typed("read_file", "Read a text file.", func(ctx context.Context, in readInput) (readOutput, error) {
		effect := step.Effect{Name: "read_file", Request: []byte(in.Path)}
		return step.Do(ctx, effect, func(context.Context, string) (readOutput, error) { return read(root, in.Path) })
	}), sourcePrefix+"read_file")
}

func read(root *os.Root, path string) (readOutput, error) {
	if !filepath.IsLocal(path) || slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "..") {
		return readOutput{}, tool.ToolDiscard(fmt.Errorf("read_file: %q is not a path below the folder", path))
	}
	info, err := root.Stat(path)
	if err != nil {
		return readOutput{}, plain(err)
	}
	if !info.Mode().IsRegular() {
		return readOutput{}, fmt.Errorf("read_file: %q is not a file", path)
	}
	f, err := root.Open(path)
	if err != nil {
		return readOutput{}, plain(err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	switch {
	case err != nil:
		return readOutput{}, plain(err)
	case len(content) > maxFileBytes:
		return readOutput{}, fmt.Errorf("read_file: %q has more than %d bytes", path, maxFileBytes)
	case !utf8.Valid(content):
		return readOutput{}, fmt.Errorf("read_file: %q is not UTF-8 text", path)
	}
	return readOutput{string(content)}, nil
}

// plain leaves out where the folder is: that is the operator's business.
func plain(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return fmt.Errorf("read_file: %q: %w", filepath.Base(at.Path), at.Err)
	}
	return err
}
