package cachefile

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"lukechampine.com/blake3"
)

// Folder makes the folder of a cache unless it exists. It refuses a folder that is a
// link, belongs to another user, or that others may enter: they would choose the code
// that is executed.
func Folder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if err := checkPrivate(info); err != nil {
		return fmt.Errorf("%s %w", dir, err)
	}
	return nil
}

// Read returns the bytes that Write stored at path, at most so many. For a file that is
// missing, cut, altered or irregular, ok is false.
func Read(path string, most int64) (content []byte, ok bool) {
	const digest = int64(32)
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size()-digest > most {
		return nil, false
	}
	file, err := os.ReadFile(path)
	if err != nil || int64(len(file)) < digest {
		return nil, false
	}
	content = file[digest:]
	return content, blake3.Sum256(content) == [32]byte(file[:digest])
}

// Write puts a file with the pieces at path. A process that dies in here leaves one beside it,
// with a name after the pattern of [os.CreateTemp].
func Write(path, pattern string, content ...[]byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), pattern)
	if err != nil {
		return err
	}
	digest, w := blake3.New(32, nil), bufio.NewWriterSize(f, 64<<10)
	for _, piece := range content {
		digest.Write(piece) // it never fails
	}
	for _, piece := range append([][]byte{digest.Sum(nil)}, content...) {
		w.Write(piece) // its error is that of Flush
	}
	err = w.Flush()
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
