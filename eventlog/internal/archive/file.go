package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/zstd"
)

// Heads are the hashes of the last events of runs, by the ids of the runs.
type Heads map[string]canon.Hash

// WriteFile is [Write] to a new file, which only its owner may read. It is compressed if its name ends in
// .zst. The file gets its name when it is on the disk and was read back with the same content, and never
// replaces one that has that name; if the process dies before, a file remains whose name ends in .part.
func WriteFile(ctx context.Context, log Log, path string, o eventlog.PruneOptions) (written Report, heads Heads, err error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
		}
		return written, nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return written, nil, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if strings.HasSuffix(path, ".zst") {
		var frame io.WriteCloser
		if frame, err = zstd.NewWriter(f); err == nil {
			written, err = Write(ctx, frame, log, o)
			err = errors.Join(err, frame.Close())
		}
	} else {
		written, err = Write(ctx, f, log, o)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return written, nil, err
	}
	read, heads, err := ReadFile(ctx, f.Name())
	if err == nil && read != written {
		err = fmt.Errorf("%w: the archive was read back with %+v, not %+v", eventlog.ErrLogCorrupt, read, written)
	}
	if err == nil { // not Rename, which would replace the archive that another host made in the meantime
		err = os.Link(f.Name(), path)
	}
	if err == nil {
		err = errors.Join(os.Remove(f.Name()), keyfile.SyncFolder(filepath.Dir(path)))
	}
	return written, heads, err
}

// ReadFile is [Check] of a file.
func ReadFile(ctx context.Context, path string) (Report, Heads, error) {
	f, err := keyfile.Open(path)
	if err != nil {
		return Report{}, nil, err
	}
	defer f.Close()
	return Check(ctx, f)
}

// unpacked reads compressed lines. There is no line where the frame is damaged.
type unpacked struct{ frames io.Reader }

func (u unpacked) Read(p []byte) (int, error) {
	n, err := u.frames.Read(p)
	if err != nil && err != io.EOF && !errors.As(err, new(*fs.PathError)) {
		err = fmt.Errorf("%w: %w", errNoLine, err)
	}
	return n, err
}
