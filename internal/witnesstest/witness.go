// Package witnesstest has a witness of transparency logs for tests.
package witnesstest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/starling-host/starling/eventlog/seal"
)

// Key is the key of a witness.
type Key struct {
	name    string
	private ed25519.PrivateKey
}

// NewKey returns the key of that name which a seed always gives.
func NewKey(name string, seed byte) Key {
	return Key{name, ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))}
}

// public is the public key, after the type of cosignatures (c2sp.org/tlog-cosignature).
func (k Key) public() []byte { return append([]byte{4}, k.private.Public().(ed25519.PublicKey)...) }

func (k Key) hash() []byte {
	sum := sha256.Sum256(append([]byte(k.name+"\n"), k.public()...))
	return sum[:4]
}

// VKey returns the public key for policies.
func (k Key) VKey() string {
	return fmt.Sprintf("%s+%x+%s", k.name, k.hash(), base64.StdEncoding.EncodeToString(k.public()))
}

// Cosign returns the cosignature on a signed checkpoint, as a line. It checks nothing.
func (k Key) Cosign(signed []byte, now time.Time) (line []byte) {
	text, _, _ := bytes.Cut(signed, []byte("\n\n"))
	message := fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s\n", now.Unix(), text)
	sig := binary.BigEndian.AppendUint64(k.hash(), uint64(now.Unix()))
	sig = append(sig, ed25519.Sign(k.private, message)...)
	return fmt.Appendf(nil, "— %s %s\n", k.name, base64.StdEncoding.EncodeToString(sig))
}

// Serve starts a witness until the test ends, and returns its URL. It cosigns a checkpoint of any log,
// whoever signed it, if it continues the last one that it saw (c2sp.org/tlog-witness).
func Serve(t testing.TB, k Key) (url string) {
	t.Helper()
	var mu sync.Mutex // guards last
	last := map[string]seal.Checkpoint{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		head, signed, _ := bytes.Cut(body, []byte("\n\n"))
		lines := strings.Split(string(head), "\n")
		var old int64
		if _, scanned := fmt.Sscanf(lines[0], "old %d", &old); err != nil || scanned != nil || r.Method+r.URL.Path != "POST/add-checkpoint" {
			http.Error(w, "not a request", http.StatusBadRequest)
			return
		}
		c, err := seal.ParseCheckpoint(signed)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var proof tlog.TreeProof
		for _, line := range lines[1:] {
			h, err := tlog.ParseHash(line)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			proof = append(proof, h)
		}
		switch seen := last[c.Origin]; {
		case old != seen.Leaves, old == c.Leaves && seen.Root != c.Root:
			w.Header().Set("Content-Type", "text/x.tlog.size")
			w.WriteHeader(http.StatusConflict)
			fmt.Fprintf(w, "%d\n", seen.Leaves)
			return
		case old > c.Leaves:
			http.Error(w, "the old size is larger", http.StatusBadRequest)
			return
		case old > 0 && old < c.Leaves && tlog.CheckTree(proof, c.Leaves, c.Root, old, seen.Root) != nil:
			http.Error(w, "the proof fails", http.StatusUnprocessableEntity)
			return
		}
		last[c.Origin] = c
		_, _ = w.Write(k.Cosign(signed, time.Now()))
	}))
	t.Cleanup(s.Close)
	return s.URL
}
