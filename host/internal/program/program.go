package program

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"regexp"
)

// ErrNoID means that the program was linked without a build ID, or with another build
// tool's ID, which may be the same for any two programs.
var ErrNoID = errors.New("program: the program has no build ID")

// ID returns the build ID that Go's linker has written into the program: a hash of the
// toolchain and of all sources, so no two programs have the same. "go tool buildid"
// prints it.
func ID() (string, error) {
	path, err := Path()
	if err != nil {
		return "", err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	begin := make([]byte, beginBytes)
	n, err := io.ReadFull(file, begin)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	id := buildID(begin[:n])
	// Hashes of the inputs of main and of the program, and of their outputs.
	if !regexp.MustCompile(`^([A-Za-z0-9_-]{20}/){3}[A-Za-z0-9_-]{20}$`).MatchString(id) {
		return "", ErrNoID
	}
	return id, nil
}

// beginBytes is how much of a program is searched for its ID: twice as much as Go's own
// tools search.
const beginBytes = 64 << 10

// The ID in an ELF file is a note: the lengths of name and text, the type 4, and the name
// "Go" (cmd/internal/buildid, note.go). In others it is text between two marks
// (cmd/internal/buildid, buildid.go).
var (
	noteHead  = []byte("\x04\x00\x00\x00Go\x00\x00")
	textBegin = []byte("\xff Go build ID: \"")
	textEnd   = []byte("\"\n \xff")
)

// buildID finds the ID at the beginning of a program, or nothing.
func buildID(begin []byte) string {
	if before, after, ok := bytes.Cut(begin, noteHead); ok && len(before) >= 8 {
		n := uint64(binary.LittleEndian.Uint32(before[len(before)-4:]))
		if n <= uint64(len(after)) {
			return string(after[:n])
		}
	}
	if _, after, ok := bytes.Cut(begin, textBegin); ok {
		id, _, _ := bytes.Cut(after, textEnd)
		return string(id)
	}
	return ""
}
