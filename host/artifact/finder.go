package artifact

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/work"
)

// Finder finds modules by their names. The zero value requires no signatures, pins tags in
// starling.lock of the working folder and keeps what it fetched in the user's cache.
type Finder struct {
	// Trust is whose signatures a module needs. Nil for none.
	Trust *Trust
	// Lock is the path of the file that pins tags to digests. The default is [LockName].
	Lock string
	// Cache is the folder of the cache. The default is starling-host/oci of the user's caches.
	Cache string
	// PlainHTTP reaches registries that do not have TLS, besides those on this machine.
	PlainHTTP bool
	// Modules returns the modules that a digest alone names. Nil for none.
	Modules func(context.Context) (eventlog.ModuleReader, error)
}

// Found is a module with the name and the keys of its signature. Without a [Trust] both are empty.
type Found struct {
	guest.Source
	Signed string
	By     []string
}

// Find returns the module that ref names, see the package. The error is a [*guest.SourceError] or
// an [*Error], except for the end of ctx, failures of the file system, and a component that is
// refused.
func (f Finder) Find(ctx context.Context, ref string) (guest.Source, error) {
	found, err := f.Verify(ctx, ref)
	return found.Source, err
}

// Verify is [Finder.Find], and returns who has signed the module.
func (f Finder) Verify(ctx context.Context, ref string) (found Found, err error) {
	c := claim{ref: ref}
	_, missing := os.Stat(ref)
	switch {
	case IsRemote(ref) && missing != nil:
		p, err := f.fetch(ctx, ref, pinned)
		return p.Found, err
	case IsDigest(ref) && missing != nil && f.Modules != nil:
		modules, err := f.Modules(ctx)
		if err != nil {
			return found, err
		}
		digest, _ := hex.DecodeString(ref)
		found.Name = "tool"
		if found.Wasm, err = modules.Module(ctx, canon.Hash(digest)); err != nil {
			return found, err
		}
	default:
		if found.Source, err = guest.Find(ctx, ref); err != nil || found.Source.Source == "" { // of this program
			return found, err
		}
		c.file = found.Name
		if signed, err := config.ReadFile(SignatureFile(found.Source.Source)); err == nil {
			c.signatures = [][]byte{signed}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return found, err
		}
	}
	found.Signed, found.By, err = f.Trust.check(c, found.Wasm)
	return found, err
}

// Check refuses a module of bytes, which has this name, unless a trusted key has signed it. Without
// a trust file it accepts all.
func (f Finder) Check(name string, wasm, signature []byte) error {
	c := claim{ref: name, file: name}
	if len(signature) > 0 {
		c.signatures = [][]byte{signature}
	}
	_, _, err := f.Trust.check(c, wasm)
	return err
}

// Pulled is a module that was fetched.
type Pulled struct {
	Found               // its Source is the name with the digest
	Signatures [][]byte // signed notes, unchecked
	Manifest   string   // digest of the manifest, or of the file of a URL
	Cached     bool     // nothing was fetched
}

// Pull fetches a module into the cache, with its signatures. If the tag has another digest than
// the lock file, Pull refuses it, or pins the new one with update. A URL needs no digest here.
func (f Finder) Pull(ctx context.Context, ref string, update bool) (Pulled, error) {
	if update {
		return f.fetch(ctx, ref, updated)
	}
	return f.fetch(ctx, ref, checked)
}

// use is how a fetch treats the digest in the lock file.
type use int

const (
	pinned  use = iota // it counts: what is in the cache is not asked for again
	checked            // the tag must still have it
	updated            // the tag replaces it
)

// fetch returns the module of a remote name, from the cache if it is there.
func (f Finder) fetch(ctx context.Context, ref string, how use) (p Pulled, err error) {
	n, err := parse(ref)
	if err != nil {
		return p, err
	}
	cache, err := f.openCache()
	if err != nil {
		return p, &Error{Ref: ref, Reason: "the cache cannot be used: " + err.Error(), Hint: "export XDG_CACHE_HOME=FOLDER", Kind: Failed}
	}
	lock, want := f.lockFile(), n.digest
	if want == "" && n.scheme != schemeHTTPS {
		pins, err := lock.read()
		if err != nil {
			return p, err
		}
		want = pins[n.key()]
	}
	c := claim{ref: ref, name: n.said()}
	load := func(digest string) error {
		wasm, err := cache.module(newBudget(ctx), n, digest)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(wasm, []byte("\x00asm")) {
			return &Error{Ref: ref, Reason: "what is there is not a WebAssembly module", Kind: Refused}
		}
		p.Source, err = guest.FromBytes(ctx, nil, n.base(), wasm, nil)
		p.Source.Source, p.Manifest = n.pinned(digest), digest
		return err
	}
	if want != "" && (how == pinned || n.digest != "") && load(want) == nil {
		p.Cached = true
		c.add(newBudget(ctx), cache, cache, n, want)
		p.Signed, p.By, err = f.Trust.check(c, p.Wasm)
	}
	if !p.Cached || err != nil { // then for its signatures
		ended := registry.Doing(ctx, "fetching "+n.key())
		limited, cancel := context.WithTimeout(ctx, fetchTimeout)
		b := newBudget(limited)
		var refused error
		for range 2 { // the cache may have a damaged part, which a load removes
			var digest string
			if n.scheme == schemeHTTPS {
				digest, refused = f.download(b, cache, n, how, &c)
			} else {
				digest, refused = f.copy(b, cache, n, want, how, &c)
			}
			if refused != nil {
				break
			}
			if refused = load(digest); refused == nil {
				break
			}
		}
		cancel()
		ended()
		if refused != nil && !p.Cached {
			return p, failed(ctx, ref, refused)
		}
		if p.Signed, p.By, err = f.Trust.check(c, p.Wasm); err != nil {
			return p, err
		}
	}
	p.Signatures = c.signatures
	if n.digest == "" && n.scheme != schemeHTTPS && p.Manifest != want {
		is, err := lock.pin(filepath.Join(cache.dir, "pins.lock"), n.key(), p.Manifest, how == updated)
		if err != nil {
			return p, &Error{Ref: ref, Reason: "the digest cannot be pinned: " + err.Error(), Hint: "give the name with its digest: " + p.Source.Source, Kind: Failed}
		}
		if err := compare(ref, "compare them: starling-host tool diff "+n.pinned(is)+" "+p.Source.Source+"; to accept the new one: starling-host tool pull --update "+n.key(),
			fact{is, p.Manifest, "the tag is now %s, and " + LockName + " pins " + is}); err != nil {
			return p, err
		}
	}
	return p, nil
}

// failed words an error of the network or of a registry.
func failed(ctx context.Context, ref string, err error) error {
	if errors.As(err, new(*Error)) {
		return err
	}
	if context.Cause(ctx) == context.Canceled {
		return context.Canceled
	}
	e := &Error{Ref: ref, Reason: reasonOf(err), Kind: Failed}
	if errors.Is(err, work.ErrExceeded) {
		e.Kind = Refused
	}
	said, ok := errors.AsType[*errcode.ErrorResponse](err)
	switch {
	case ok && (said.StatusCode == http.StatusUnauthorized || said.StatusCode == http.StatusForbidden), errors.Is(err, auth.ErrBasicCredentialNotFound):
		e.Hint = "log in, for example with: docker login REGISTRY"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		e.Hint = "if the registry has no TLS: --plain-http"
	}
	return e
}

// reasonOf is an error of a registry in one line, with what it said.
func reasonOf(err error) string {
	if said, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		text := fmt.Sprintf("the registry says %d %s", said.StatusCode, http.StatusText(said.StatusCode))
		for _, e := range said.Errors[:min(len(said.Errors), 3)] {
			text += fmt.Sprintf(": %.200s", e.Message)
		}
		return text
	}
	if errors.Is(err, errdef.ErrNotFound) {
		return "there is no such tool or tag"
	}
	return fmt.Sprintf("%.1000s", err)
}

func (f Finder) lockFile() lockFile {
	return lockFile(cmp.Or(f.Lock, LockName))
}

// CacheFolder returns the folder of the cache, whether or not it exists.
func (f Finder) CacheFolder() (string, error) {
	if f.Cache != "" {
		return f.Cache, nil
	}
	base, err := os.UserCacheDir()
	return filepath.Join(base, "starling-host", "oci"), err
}

func (f Finder) openCache() (*layout, error) {
	dir, err := f.CacheFolder()
	if err != nil {
		return nil, err
	}
	return openLayout(dir, true, true)
}

// module returns the module of a manifest in the cache, or the file of a URL, by digest.
func (l *layout) module(b *work.Budget, n name, digest string) ([]byte, error) {
	if n.scheme == schemeHTTPS {
		d, err := l.Resolve(b.Context(), digest)
		if err != nil {
			return nil, err
		}
		d.MediaType = typeModule
		return part(b, l, d)
	}
	_, m, _, err := manifestOf(b, l, digest)
	if err != nil {
		return nil, err
	}
	layer, err := layerOf(m)
	if err != nil {
		return nil, err
	}
	text, err := part(b, l, layer)
	if err != nil || !packed(layer.MediaType) {
		return text, err
	}
	return unpack(b, text)
}

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
