package artifact_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/internal/ocitest"
)

var module = []byte("\x00asm\x01\x00\x00\x00")

func finder(t *testing.T) artifact.Finder {
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir) // without credentials
	return artifact.Finder{Cache: filepath.Join(dir, "cache"), Lock: filepath.Join(dir, artifact.LockName)}
}

func push(t *testing.T, f artifact.Finder, ref string, wasm []byte) string {
	t.Helper()
	name, err := f.Push(t.Context(), ref, wasm, map[string]string{"org.opencontainers.image.title": "dice"})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	known, ok := errors.AsType[*artifact.Error](err)
	if !ok || !regexp.MustCompile(want).MatchString(known.Reason) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestPushPull pushes to a registry, pulls on another machine, and goes on without the registry.
func TestPushPull(t *testing.T) {
	var down atomic.Bool
	addr := ocitest.Registry(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				panic(http.ErrAbortHandler)
			}
			h.ServeHTTP(w, r)
		})
	})
	ref := "oci://" + addr + "/tools/dice:1.0"
	author, user := finder(t), finder(t)
	name := push(t, author, ref, module)
	if again := push(t, finder(t), ref, module); again != name {
		t.Errorf("pushed as %s and then as %s", name, again)
	}
	if !strings.HasPrefix(name, ref+"@sha256:") {
		t.Errorf("pushed as %s", name)
	}
	p, err := user.Pull(t.Context(), ref, false)
	if err != nil || !bytes.Equal(p.Wasm, module) || p.Cached || p.Source.Source != name || p.Name != "dice" {
		t.Fatalf("%+v, %v", p, err)
	}
	other := append(bytes.Clone(module), 0, 2, 1, 'x') // a custom section
	changed := push(t, author, ref, other)
	if s, err := user.Find(t.Context(), ref); err != nil || !bytes.Equal(s.Wasm, module) {
		t.Errorf("the pinned module is not used: %v", err)
	}
	pinned, tagged := finder(t), "oci://"+addr+"/tools/pinned:1" // a push pins, so a tag that moves afterwards is not followed
	push(t, pinned, tagged, module)
	push(t, finder(t), tagged, other)
	if s, err := pinned.Find(t.Context(), tagged); err != nil || !bytes.Equal(s.Wasm, module) {
		t.Errorf("the module that was pushed is not the one that is used: %v", err)
	}
	_, err = user.Pull(t.Context(), ref, false)
	refused(t, err, "^the tag is now sha256:.*starling.lock pins sha256:")
	if p, err := user.Pull(t.Context(), ref, true); err != nil || !bytes.Equal(p.Wasm, other) {
		t.Errorf("%v", err)
	}
	down.Store(true)
	for ref, want := range map[string][]byte{ref: other, name: module, changed: other, strings.Replace(name, ":1.0@", "@", 1): module} {
		if s, err := user.Find(t.Context(), ref); err != nil || !bytes.Equal(s.Wasm, want) {
			t.Errorf("%s without the registry: %v", ref, err)
		}
	}
	_, err = user.Find(t.Context(), "oci://"+addr+"/tools/other:1.0")
	refused(t, err, "EOF")
	list, _, err := user.List(t.Context(), "")
	if err != nil || len(list) != 1 || list[0].Name != ref {
		t.Errorf("%+v, %v", list, err)
	}
	// A damaged blob is not used, and is fetched again.
	blobs, _ := filepath.Glob(filepath.Join(user.Cache, "blobs", "sha256", "*"))
	for _, blob := range blobs {
		if os.Chmod(blob, 0o600) != nil || os.WriteFile(blob, []byte("damaged"), 0o600) != nil {
			t.Fatal("not damaged")
		}
	}
	_, err = user.Find(t.Context(), ref)
	refused(t, err, "EOF")
	down.Store(false)
	if s, err := user.Find(t.Context(), ref); err != nil || !bytes.Equal(s.Wasm, other) {
		t.Errorf("after the damage: %v", err)
	}
}

// TestCredentials pulls from a registry with a password, in both ways of registries.
func TestCredentials(t *testing.T) {
	for _, way := range []string{"Basic", "Bearer"} {
		var addr string
		login := func(r *http.Request) bool {
			user, password, ok := r.BasicAuth()
			return ok && user == "ada" && password == "s3cret"
		}
		addr = ocitest.Registry(t, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/token" && login(r):
					fmt.Fprint(w, `{"token":"t0ken"}`)
				case way == "Basic" && login(r), way == "Bearer" && r.Header.Get("Authorization") == "Bearer t0ken":
					h.ServeHTTP(w, r)
				case way == "Basic":
					w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
					w.WriteHeader(http.StatusUnauthorized)
				default:
					w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+addr+`/token",service="registry"`)
					w.WriteHeader(http.StatusUnauthorized)
				}
			})
		})
		f := finder(t)
		ref := "oci://" + addr + "/tools/dice:1.0"
		_, err := f.Push(t.Context(), ref, module, nil)
		known, ok := errors.AsType[*artifact.Error](err)
		if !ok || !strings.Contains(known.Hint, "docker login") {
			t.Errorf("%s without a password: %v", way, err)
		}
		auth := base64.StdEncoding.EncodeToString([]byte("ada:s3cret"))
		if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, addr, auth), 0o600); err != nil {
			t.Fatal(err)
		}
		push(t, f, ref, module)
		g := finder(t)
		if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, addr, auth), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Find(t.Context(), ref); err != nil {
			t.Errorf("%s: %v", way, err)
		}
	}
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// serve answers with a manifest and with blobs by their digest.
func serve(manifest string, blobs map[string][]byte) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, name, _ := strings.Cut(r.URL.Path, "/tools/dice/")
			kind, ref, _ := strings.Cut(name, "/")
			switch {
			case kind == "manifests" && (ref == "1.0" || ref == digest([]byte(manifest))):
				w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
				w.Header().Set("Docker-Content-Digest", digest([]byte(manifest)))
				w.Header().Set("Content-Length", fmt.Sprint(len(manifest)))
				_, _ = io.WriteString(w, manifest)
			case kind == "blobs" && blobs[ref] != nil:
				_, _ = w.Write(blobs[ref])
			default:
				http.NotFound(w, r)
			}
		})
	}
}

// manifestOf is a manifest of layers, each a type with bytes.
func manifestOf(blobs map[string][]byte, layers ...any) string {
	config := []byte("{}")
	blobs[digest(config)] = config
	m := map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": map[string]any{"mediaType": "application/vnd.wasm.config.v0+json", "digest": digest(config), "size": len(config)}}
	var all []any
	for i := 0; i < len(layers); i += 2 {
		b := layers[i+1].([]byte)
		blobs[digest(b)] = b
		all = append(all, map[string]any{"mediaType": layers[i], "digest": digest(b), "size": len(b), "annotations": map[string]string{"org.opencontainers.image.title": "../../../../tmp/evil\x1b[31m.wasm"}})
	}
	m["layers"] = all
	text, _ := json.Marshal(m)
	return string(text)
}

func archive(t *testing.T, zipped bool, names ...string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(module)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(module)
	}
	w.Close()
	if !zipped {
		return b.Bytes()
	}
	var z bytes.Buffer
	g := gzip.NewWriter(&z)
	_, _ = g.Write(b.Bytes())
	g.Close()
	return z.Bytes()
}

// bomb is an image whose layer unpacks to a thousand times its size before the module.
func bomb(t *testing.T) []byte {
	t.Helper()
	const size = 256 << 20
	var z bytes.Buffer
	g, _ := gzip.NewWriterLevel(&z, gzip.BestSpeed)
	w := tar.NewWriter(g)
	zeros := make([]byte, 1<<20)
	err := w.WriteHeader(&tar.Header{Name: "data", Size: size, Mode: 0o644})
	for i := 0; i < size && err == nil; i += len(zeros) {
		_, err = w.Write(zeros)
	}
	if err = errors.Join(err, w.WriteHeader(&tar.Header{Name: "a.wasm", Size: int64(len(module)), Mode: 0o644})); err == nil {
		_, err = w.Write(module)
	}
	if err = errors.Join(err, w.Close(), g.Close()); err != nil {
		t.Fatal(err)
	}
	return z.Bytes()
}

// TestLargeIndex asks a folder whose index has many entries of two bytes.
func TestLargeIndex(t *testing.T) {
	dir, f := t.TempDir(), finder(t)
	name := push(t, f, "oci-layout:"+dir+":1", module)
	text := `{"schemaVersion":2,"manifests":[` + strings.Repeat("{},", 2<<20) + `{}]}`
	if err := os.WriteFile(filepath.Join(dir, "index.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := finder(t).Find(t.Context(), name[:strings.Index(name, "@")])
	refused(t, err, "costs more than its size allows")
}

// TestForeignArtefacts pulls what other programs push, and refuses what no module is.
func TestForeignArtefacts(t *testing.T) {
	const wasm, gz = "application/wasm", "application/vnd.oci.image.layer.v1.tar+gzip"
	for what, c := range map[string]struct {
		layers []any
		change func(manifest string, blobs map[string][]byte) string
		want   string // empty: it is the module
	}{
		"one layer":                  {layers: []any{wasm, module}},
		"a policy of another host":   {layers: []any{wasm, module, "application/vnd.wassette.policy+yaml", []byte("version: 1")}},
		"an image":                   {layers: []any{gz, archive(t, true, "plugin.wasm")}},
		"an image of docker":         {layers: []any{"application/vnd.docker.image.rootfs.diff.tar.gzip", archive(t, true, "./README", "app/plugin.wasm")}},
		"an image that climbs":       {layers: []any{"application/vnd.oci.image.layer.v1.tar", archive(t, false, "../../../../tmp/evil.wasm")}},
		"two modules":                {layers: []any{wasm, module, wasm, append(bytes.Clone(module), 0, 1, 0)}, want: "2 layers"},
		"two in an image":            {layers: []any{gz, archive(t, true, "a.wasm", "b.wasm")}, want: "several modules"},
		"an image without":           {layers: []any{gz, archive(t, true, "a.txt")}, want: "not an archive with one module"},
		"an archive that is none":    {layers: []any{gz, []byte("\x1f\x8bnonsense")}, want: "gzip|unexpected EOF"},
		"an image that unpacks":      {layers: []any{gz, bomb(t)}, want: "costs more than its size allows"},
		"no layer":                   {want: "0 layers"},
		"a type of another thing":    {layers: []any{"text/plain", module}, want: "0 layers"},
		"a script under wasm's type": {layers: []any{wasm, []byte("#!/bin/sh\n")}, want: "not a WebAssembly module"},
		"another blob": {layers: []any{wasm, module}, want: "mismatch|digest", change: func(m string, blobs map[string][]byte) string {
			blobs[digest(module)] = []byte("\x00asm\x01\x00\x00\x01")
			return m
		}},
		"a blob that is longer": {layers: []any{wasm, module}, want: "mismatch|trailing|size", change: func(m string, blobs map[string][]byte) string {
			blobs[digest(module)] = append(bytes.Clone(module), 1)
			return m
		}},
		"a blob that is shorter": {layers: []any{wasm, module}, want: "mismatch|EOF|size", change: func(m string, blobs map[string][]byte) string {
			blobs[digest(module)] = module[:4]
			return m
		}},
		"a huge layer": {layers: []any{wasm, module}, want: "at most 67108864", change: func(m string, _ map[string][]byte) string {
			return strings.Replace(m, `"size":8}`, `"size":99999999999}`, 1)
		}},
		"a negative size": {layers: []any{wasm, module}, want: "a part of -8|invalid", change: func(m string, _ map[string][]byte) string {
			return strings.Replace(m, `"size":8}`, `"size":-8}`, 1)
		}},
		"a digest that is a path": {layers: []any{wasm, module}, want: "digest|a part of", change: func(m string, _ map[string][]byte) string {
			return strings.Replace(m, digest(module), "sha256:../../../../etc/passwd", 1)
		}},
		"a digest of another kind": {layers: []any{wasm, module}, want: "digest|a part of", change: func(m string, _ map[string][]byte) string {
			return strings.Replace(m, digest(module), "sha512:"+strings.Repeat("0", 128), 1)
		}},
		"a huge manifest": {layers: []any{wasm, module}, want: "at most 1048576|exceeds|size", change: func(m string, _ map[string][]byte) string {
			return m + strings.Repeat(" ", 2<<20)
		}},
		"a manifest of another type": {layers: []any{wasm, module}, want: "not a manifest of the type", change: func(m string, _ map[string][]byte) string {
			return strings.Replace(m, `"application/vnd.oci.image.manifest.v1+json","schema`, `"application/vnd.oci.image.index.v1+json","schema`, 1)
		}},
		"no JSON": {layers: []any{wasm, module}, want: "not a manifest", change: func(string, map[string][]byte) string { return "hello" }},
	} {
		t.Run(what, func(t *testing.T) {
			blobs := map[string][]byte{}
			m := manifestOf(blobs, c.layers...)
			if c.change != nil {
				m = c.change(m, blobs)
			}
			f := finder(t)
			s, err := f.Find(t.Context(), "oci://"+ocitest.Registry(t, serve(m, blobs))+"/tools/dice:1.0")
			if c.want == "" {
				if err != nil || !bytes.Equal(s.Wasm, module) || s.Name != "dice" {
					t.Errorf("%+v, %v", s, err)
				}
				return
			}
			refused(t, err, c.want)
			if _, err := os.Stat(f.Lock); err == nil {
				t.Error("it was pinned")
			}
		})
	}
}

// TestLyingRegistry pulls by digest from registries that have something else.
func TestLyingRegistry(t *testing.T) {
	blobs := map[string][]byte{}
	m := manifestOf(blobs, "application/wasm", module)
	other := manifestOf(blobs, "application/wasm", append(bytes.Clone(module), 0, 1, 0))
	for what, wrap := range map[string]func(http.ResponseWriter, *http.Request){
		"another manifest": func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = strings.Replace(r.URL.Path, digest([]byte(m)), "1.0", 1)
			serve(other, blobs)(nil).ServeHTTP(w, r)
		},
		"the digest that was asked for, of another": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Docker-Content-Digest", digest([]byte(m)))
			_, _ = io.WriteString(w, other)
		},
	} {
		addr := ocitest.Registry(t, func(http.Handler) http.Handler { return http.HandlerFunc(wrap) })
		_, err := finder(t).Find(t.Context(), "oci://"+addr+"/tools/dice@"+digest([]byte(m)))
		known, ok := errors.AsType[*artifact.Error](err)
		if !ok || !regexp.MustCompile("in its place|mismatch|digest").MatchString(known.Reason) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestRedirects follows none to another scheme, and not without end.
func TestRedirects(t *testing.T) {
	addr := ocitest.Registry(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) })
	})
	_, err := finder(t).Find(t.Context(), "oci://"+addr+"/tools/dice:1.0")
	refused(t, err, "redirect")
}

// TestInterruptedPull ends a pull in the middle of a module, as a killed process does: the cache has
// no half module, and the next pull succeeds.
func TestInterruptedPull(t *testing.T) {
	large := append(bytes.Clone(module), 0, 0x81, 0x80, 0x40, 0) // a custom section of 1 MiB
	large = append(large, make([]byte, 1<<20)...)
	var slow atomic.Bool
	half := make(chan struct{})
	addr := ocitest.Registry(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if slow.Load() && strings.HasSuffix(r.URL.Path, "/blobs/"+digest(large)) && r.Method == http.MethodGet {
				w.Header().Set("Content-Length", fmt.Sprint(len(large)))
				_, _ = w.Write(large[:len(large)/2])
				w.(http.Flusher).Flush()
				close(half)
				<-r.Context().Done()
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	ref := "oci://" + addr + "/tools/dice:1.0"
	push(t, finder(t), ref, large)
	slow.Store(true)
	f := finder(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-half
		cancel()
	}()
	if _, err := f.Find(ctx, ref); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := os.Stat(filepath.Join(f.Cache, "blobs", "sha256", strings.TrimPrefix(digest(large), "sha256:"))); err == nil {
		t.Error("the cache has a half module")
	}
	if _, err := os.Stat(f.Lock); err == nil {
		t.Error("it was pinned")
	}
	// What a dying process can leave: a cut temporary file, and no index.
	for _, name := range []string{"ingest/half_1", "index.json123"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(f.Cache, "ingest"), 0o700), os.WriteFile(filepath.Join(f.Cache, name), []byte("{"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	slow.Store(false)
	if s, err := f.Find(t.Context(), ref); err != nil || !bytes.Equal(s.Wasm, large) {
		t.Errorf("afterwards: %v", err)
	}
}

// TestURL fetches a file with TLS. It is used without the server, and only with its digest.
func TestURL(t *testing.T) {
	key, err := seal.NewKey("acme")
	if err != nil {
		t.Fatal(err)
	}
	var from string
	body := module
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/tools/dice.wasm":
			_, _ = w.Write(body)
		case "/tools/dice.wasm.sig":
			note, _ := seal.ToolStatement{Name: strings.TrimPrefix(from, "https://") + "/tools/dice", Module: canon.Sum(module)}.Sign(key, nil)
			_, _ = w.Write(note)
		case "/moved.wasm":
			http.Redirect(w, r, "/tools/dice.wasm", http.StatusFound)
		case "/plain.wasm":
			http.Redirect(w, r, strings.Replace(from, "https:", "http:", 1)+"/tools/dice.wasm", http.StatusFound)
		case "/huge.wasm":
			_, _ = w.Write(module)
			for range 65 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	from = server.URL
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", roots)
	f := finder(t)
	p, err := f.Pull(t.Context(), from+"/tools/dice.wasm", false)
	if err != nil || p.Source.Source != from+"/tools/dice.wasm@"+digest(module) || p.Name != "dice" {
		t.Fatalf("%+v, %v", p, err)
	}
	for path, want := range map[string]string{"/plain.wasm": "plain http is not followed", "/huge.wasm": "more than 67108864 bytes", "/none.wasm": "404"} {
		_, err := f.Pull(t.Context(), from+path, false)
		refused(t, err, want)
	}
	if _, err := f.Pull(t.Context(), from+"/moved.wasm", false); err != nil {
		t.Error(err)
	}
	body = append(bytes.Clone(module), 0, 1, 0)
	_, err = finder(t).Find(t.Context(), p.Source.Source)
	refused(t, err, "the file is now sha256:")
	server.Close()
	f.Trust = artifact.TrustKeys(key.VKey())
	if found, err := f.Verify(t.Context(), p.Source.Source); err != nil || len(found.By) != 1 {
		t.Errorf("without the server: %+v, %v", found, err)
	}
}

// TestNames refuses names that are not in their form, without a network.
func TestNames(t *testing.T) {
	for ref, want := range map[string]string{
		"oci://": "want oci://", "oci://example.com": "want oci://", "oci://example.com/UPPER:1": "want oci://",
		"oci://example.com/../x:1": "want oci://", "oci://user:pw@example.com/x": "not a digest", "oci://example.com/x:\x1b[31m": "the tag is not",
		"oci://example.com/x:a b": "the tag is not", "oci://example.com/x@sha256:12": "not a digest", "oci://example.com/x@md5:12": "not a digest",
		"http://example.com/x.wasm": "plain http", "https://example.com/x.wasm": "needs the digest", "https://user:pw@example.com/x.wasm@sha256:" + strings.Repeat("0", 64): "not the URL",
		"oci-layout:": "want oci-layout", "oci-layout:nowhere:1": "no folder nowhere", "oci://example.com/x:" + strings.Repeat("t", 129): "the tag is not",
	} {
		_, err := finder(t).Find(t.Context(), ref)
		refused(t, err, want)
	}
}

// TestPullsAtOnce pulls many tools in many processes' ways at once: all are in the index afterwards.
func TestPullsAtOnce(t *testing.T) {
	addr := ocitest.Registry(t, nil)
	author, user := finder(t), finder(t)
	const tools = 8
	for i := range tools {
		push(t, author, fmt.Sprintf("oci://%s/tools/t%d:1", addr, i), append(bytes.Clone(module), 0, 2, 1, byte(i)))
	}
	for _, lock := range []string{"first.lock", "second.lock"} { // with an empty cache, and with a full one
		user.Lock = filepath.Join(t.TempDir(), lock)
		var work sync.WaitGroup
		for i := range 4 * tools {
			work.Go(func() {
				if _, err := user.Find(context.Background(), fmt.Sprintf("oci://%s/tools/t%d:1", addr, i%tools)); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		list, _, err := user.List(t.Context(), "")
		pins, _ := os.ReadFile(user.Lock)
		if err != nil || len(list) != tools || strings.Count(string(pins), "sha256:") != tools {
			t.Errorf("%d of %d in the index, %v; pinned:\n%s", len(list), tools, err, pins)
		}
	}
}

// TestSignatures signs beside a file and in a registry, and checks what a trust file requires.
func TestSignatures(t *testing.T) {
	addr := ocitest.Registry(t, nil)
	key, err := seal.NewKey("acme.example.com/tools")
	other, err2 := seal.NewKey("other.example.com")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	ref := "oci://" + addr + "/tools/dice:1.0"
	f := finder(t)
	push(t, f, ref, module)
	trust := func(names string, keys ...string) *artifact.Trust {
		file := filepath.Join(t.TempDir(), "trust.yaml")
		if err := os.WriteFile(file, fmt.Appendf(nil, "tools:\n- {names: [%q], keys: [%s]}\n", names, strings.Join(keys, ", ")), 0o600); err != nil {
			t.Fatal(err)
		}
		made, err := artifact.LoadTrust(file)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	find := func(trust *artifact.Trust) (artifact.Found, error) {
		f := finder(t)
		f.Trust = trust
		return f.Verify(t.Context(), ref)
	}
	_, err = find(trust(addr+"/tools/*", key.VKey()))
	refused(t, err, "it is not signed")
	p, err := f.Pull(t.Context(), ref, false)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(name string, wasm []byte, k *seal.Key) []byte {
		note, err := seal.ToolStatement{Name: name, Module: canon.Sum(wasm)}.Sign(k, nil)
		if err != nil {
			t.Fatal(err)
		}
		return note
	}
	attach := func(note []byte) {
		if err := f.Attach(t.Context(), ref, p, note); err != nil {
			t.Fatal(err)
		}
	}
	attach(sign(addr+"/tools/payments", module, key))
	_, err = find(trust(addr+"/tools/*", key.VKey()))
	refused(t, err, "is of the name")
	attach(sign(addr+"/tools/dice", []byte("\x00asm"), key))
	_, err = find(trust(addr+"/tools/*", key.VKey()))
	refused(t, err, "is of another module")
	attach(sign(addr+"/tools/dice", module, other))
	_, err = find(trust(addr+"/tools/*", key.VKey()))
	refused(t, err, "is signed by other.example.com.*trusts acme.example.com/tools")
	attach(sign(addr+"/tools/dice", module, key))
	found, err := find(trust(addr+"/tools/*", key.VKey()))
	if err != nil || len(found.By) != 1 || found.By[0] != key.VKey() || found.Signed != addr+"/tools/dice" {
		t.Errorf("%+v, %v", found, err)
	}
	_, err = find(trust("elsewhere/*", key.VKey()))
	refused(t, err, "trusts no key")
	// The signer's own cache has the signature, without the registry.
	f.Trust = trust(addr+"/tools/*", key.VKey())
	if _, err := f.Find(t.Context(), ref); err != nil {
		t.Error(err)
	}
	// Beside a file.
	dir := t.TempDir()
	file := filepath.Join(dir, "dice.wasm")
	if err := errors.Join(os.WriteFile(file, module, 0o600), os.WriteFile(file+".sig", sign("acme/dice", module, key), 0o600)); err != nil {
		t.Fatal(err)
	}
	f.Trust = trust("acme/*", key.VKey())
	if _, err := f.Find(t.Context(), file); err != nil {
		t.Error(err)
	}
	if err := errors.Join(os.Rename(file, filepath.Join(dir, "payments.wasm")), os.Rename(file+".sig", filepath.Join(dir, "payments.wasm.sig"))); err != nil {
		t.Fatal(err)
	}
	_, err = f.Find(t.Context(), filepath.Join(dir, "payments.wasm"))
	refused(t, err, "is of the name")
}

// TestCosign checks the signature that cosign writes with a key.
func TestCosign(t *testing.T) {
	addr := ocitest.Registry(t, nil)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "cosign.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600),
		os.WriteFile(filepath.Join(dir, "trust.yaml"), []byte("tools:\n- {names: ['*/tools/*'], cosign: [cosign.pub]}\n"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	trust, err := artifact.LoadTrust(filepath.Join(dir, "trust.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	f := finder(t)
	name := push(t, f, "oci://"+addr+"/tools/dice:1.0", module)
	_, manifest, _ := strings.Cut(name, "@")
	put := func(payload string, damage bool) {
		hash := sha256.Sum256([]byte(payload))
		sig, err := ecdsa.SignASN1(rand.Reader, private, hash[:])
		if err != nil {
			t.Fatal(err)
		}
		if damage {
			sig[len(sig)-1] ^= 1
		}
		config := "{}"
		m := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":2},"layers":[{"mediaType":"application/vnd.dev.cosign.simplesigning.v1+json","digest":%q,"size":%d,"annotations":{"dev.cosignproject.cosign/signature":%q}}]}`,
			digest([]byte(config)), digest([]byte(payload)), len(payload), base64.StdEncoding.EncodeToString(sig))
		for _, blob := range []string{config, payload} {
			upload(t, "POST", "http://"+addr+"/v2/tools/dice/blobs/uploads/?digest="+digest([]byte(blob)), "application/octet-stream", blob)
		}
		upload(t, "PUT", "http://"+addr+"/v2/tools/dice/manifests/"+strings.Replace(manifest, ":", "-", 1)+".sig", "application/vnd.oci.image.manifest.v1+json", m)
	}
	said := func(reference, digest, kind string) string {
		return fmt.Sprintf(`{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":%q},"optional":null}`, reference, digest, kind)
	}
	const kind = "cosign container image signature"
	for _, c := range []struct {
		payload string
		damage  bool
		want    string
	}{
		{said(addr+"/tools/dice", manifest, kind), true, "by another key"},
		{said(addr+"/tools/dice", "sha256:"+strings.Repeat("0", 64), kind), false, "of another artefact"},
		{said(addr+"/tools/payments", manifest, kind), false, "of the name"},
		{said(addr+"/tools/dice", manifest, "something else"), false, "not of an artefact"},
		{said(addr+"/tools/dice", manifest, kind), false, ""},
	} {
		put(c.payload, c.damage)
		f := finder(t)
		f.Trust = trust
		found, err := f.Verify(t.Context(), "oci://"+addr+"/tools/dice:1.0")
		if c.want != "" {
			refused(t, err, c.want)
		} else if err != nil || len(found.By) != 1 || found.By[0] != "cosign" {
			t.Errorf("%+v, %v", found, err)
		}
	}
}

func upload(t *testing.T, method, url, kind, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %v, %v", url, answer, err)
	}
	answer.Body.Close()
}
