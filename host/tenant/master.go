package tenant

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

const (
	masterSize   = 32
	masterPrefix = "sthm_" // before the 64 hexadecimal digits, so that a scanner for secrets knows it
	labelMaster  = "starling-host master key id 1\x00"
	labelWrap    = "starling-host wrapping key 1\x00"
)

// MasterKey wraps the data keys of all tenants. Printing it shows its id. The
// secret is behind a function, which no printing looks into. The zero value is
// none.
type MasterKey struct{ of func() *master }

type master struct {
	secret [masterSize]byte
	id     string
}

// NewMasterKey makes a random master key.
func NewMasterKey() MasterKey {
	var secret [masterSize]byte
	_, _ = rand.Read(secret[:]) // never fails
	k, err := masterFrom(secret)
	if err != nil {
		panic(err) // the sizes are constants
	}
	return k
}

// maxMasterKeys is how many master keys a file may have.
const maxMasterKeys = 4

// ParseMasterKeys reads one to four master keys, each as [MasterKey.Text] has written it:
// "sthm_" and 64 hexadecimal digits. White space stands between them. Its errors do not quote
// them.
func ParseMasterKeys(text []byte) (keys []MasterKey, err error) {
	words := bytes.Fields(text)
	if len(words) == 0 {
		words = [][]byte{nil} // which is no key
	}
	for _, word := range words {
		digits, ok := bytes.CutPrefix(word, []byte(masterPrefix))
		var secret [masterSize]byte
		if !ok || len(digits) != hex.EncodedLen(masterSize) {
			return nil, fmt.Errorf("%w: a master key is %q and %d hexadecimal digits", ErrInvalid, masterPrefix, hex.EncodedLen(masterSize))
		}
		if _, err := hex.Decode(secret[:], digits); err != nil {
			return nil, fmt.Errorf("%w: the master key has a character that is not a hexadecimal digit", ErrInvalid)
		}
		k, err := masterFrom(secret)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(keys, func(other MasterKey) bool { return other.ID() == k.ID() }) {
			keys = append(keys, k)
		}
	}
	if len(keys) > maxMasterKeys {
		return nil, fmt.Errorf("%w: there are %d master keys; at most %d are allowed", ErrInvalid, len(keys), maxMasterKeys)
	}
	return keys, nil
}

func masterFrom(secret [masterSize]byte) (MasterKey, error) {
	id, err := hkdf.Key(sha256.New, secret[:], nil, labelMaster, 16)
	if err != nil {
		return MasterKey{}, fmt.Errorf("tenant: id of the master key: %w", err)
	}
	m := &master{secret, hex.EncodeToString(id)}
	return MasterKey{func() *master { return m }}, nil
}

// ReadMasterKeys reads the master keys of a file, see [ParseMasterKeys]. A file that others
// than its owner may read or write is refused.
func ReadMasterKeys(path string) ([]MasterKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("tenant: master key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat() // of the open file, so that nobody exchanges it in between
	if err != nil {
		return nil, fmt.Errorf("tenant: master key: %w", err)
	}
	if err := private(path, info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return nil, fmt.Errorf("tenant: master key: %w", err)
	}
	keys, err := ParseMasterKeys(text)
	if err != nil {
		return nil, fmt.Errorf("master key file %s: %w", path, err)
	}
	return keys, nil
}

func private(path string, info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: master key file %s is not a regular file", ErrInvalid, path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: master key file %s has mode %04o, so others than its owner may read it (chmod 600 makes it private)",
			ErrInvalid, path, info.Mode().Perm())
	}
	return nil
}

// CreateMasterKey makes a random master key and writes it to a new file, readable
// by its owner alone. It is on the disk when CreateMasterKey returns. A file that
// exists is never overwritten, because the data keys that it wraps would be lost.
func CreateMasterKey(path string) (MasterKey, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return MasterKey{}, fmt.Errorf("tenant: master key: %w", err)
	}
	k := NewMasterKey()
	_, err = io.WriteString(f, k.Text().Reveal()+"\n")
	if err = errors.Join(err, f.Sync(), f.Close(), syncFolder(filepath.Dir(path))); err != nil {
		return MasterKey{}, fmt.Errorf("tenant: master key: %w", errors.Join(err, os.Remove(path)))
	}
	return k, nil
}

// syncFolder makes the names in a folder durable, where the system can.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ID names the key and says nothing about it. It is empty for the zero MasterKey.
func (k MasterKey) ID() string {
	if k.of == nil {
		return ""
	}
	return k.of().id
}

// String returns the id of the key.
func (k MasterKey) String() string { return "master key " + k.ID() }

// GoString returns the id of the key.
func (k MasterKey) GoString() string { return k.String() }

// Text returns the key in the form that [ParseMasterKeys] reads.
func (k MasterKey) Text() Value {
	if k.of == nil {
		return Value{}
	}
	return NewValue(masterPrefix + hex.EncodeToString(k.of().secret[:]))
}

// wrapping returns the key that wraps data keys.
func (k MasterKey) wrapping() ([]byte, error) {
	if k.of == nil {
		return nil, ErrNoMasterKey
	}
	b, err := hkdf.Key(sha256.New, k.of().secret[:], nil, labelWrap, masterSize)
	if err != nil {
		return nil, fmt.Errorf("tenant: derive the wrapping key: %w", err)
	}
	return b, nil
}
