package artifact

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/keyfile"
)

// LockName is the name of a lock file.
const LockName = "starling.lock"

const lockHeader = "# The digests of tools, pinned when they were first used. Keep this file with your sources.\n"

// lockFile is the path of a lock file: lines of a name with its tag, a space and a digest.
type lockFile string

func (l lockFile) read() (map[string]string, error) {
	text, err := config.ReadFile(string(l))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, err
	}
	pins, n := map[string]string{}, 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndex(line, " ")
		if i < 0 || !digestForm().MatchString(line[i+1:]) || pins[line[:i]] != "" {
			return nil, &Error{Ref: string(l), Reason: fmt.Sprintf("line %d is not a name and a digest, or names a tool again", n),
				Hint: "take the file from your version control, or remove the line and pull the tool again"}
		}
		pins[line[:i]] = line[i+1:]
	}
	return pins, nil
}

// pin sets the digest of a name. If another process has pinned another one since it was read,
// pin returns that one.
func (l lockFile) pin(lock, key, digest string, replace bool) (pinned string, err error) {
	unlock, err := keyfile.Lock(lock)
	if err != nil {
		return "", err
	}
	defer unlock()
	pins, err := l.read()
	if err != nil {
		return "", err
	}
	if is := pins[key]; is == digest || is != "" && !replace {
		return is, nil
	}
	pins[key] = digest
	text := bytes.NewBufferString(lockHeader)
	for _, key := range slices.SortedFunc(maps.Keys(pins), cmp.Compare[string]) {
		fmt.Fprintf(text, "%s %s\n", key, pins[key])
	}
	return digest, keyfile.Replace(string(l), text.Bytes(), 0o600)
}
