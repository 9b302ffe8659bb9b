package artifact_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/starling-host/starling/internal/ocitest"
)

// strip is a response without one header.
type strip struct {
	http.ResponseWriter
	name string
}

func (s strip) WriteHeader(code int) {
	s.Header().Del(s.name)
	s.ResponseWriter.WriteHeader(code)
}

func (s strip) Write(b []byte) (int, error) {
	s.Header().Del(s.name)
	return s.ResponseWriter.Write(b)
}

// TestUnusualRegistries pulls a tool from registries that are slow, poor or hostile. The module comes each
// time, after a bounded number of requests.
func TestUnusualRegistries(t *testing.T) {
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	index := func(one string, n int) string {
		return `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[` + strings.Repeat(one+",", n) + one + `]}`
	}
	about := func(name string) string { // a signature without the layer that would have it
		of := name[strings.LastIndex(name, "@")+1:]
		text, _ := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "artifactType": "application/vnd.starling.tool-signature.v1",
			"config": map[string]any{"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest([]byte("{}")), "size": 2}, "layers": []any{},
			"subject": map[string]any{"mediaType": manifestType, "digest": of, "size": 1}})
		return string(text)
	}
	for what, answer := range map[string]func(w http.ResponseWriter, r *http.Request, asked int64, name string) bool{
		"too many requests": func(w http.ResponseWriter, r *http.Request, asked int64, _ string) bool {
			if asked == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			}
			return asked == 1
		},
		"unavailable at first": func(w http.ResponseWriter, r *http.Request, asked int64, _ string) bool {
			if asked <= 2 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return asked <= 2
		},
		"endless referrers": func(w http.ResponseWriter, r *http.Request, asked int64, _ string) bool {
			if strings.Contains(r.URL.Path, "/referrers/") {
				w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
				w.Header().Set("Link", fmt.Sprintf(`<%s?n=%d>; rel="next"`, r.URL.Path, asked))
				fmt.Fprint(w, index(`{"mediaType":"`+manifestType+`","size":100,"digest":"`+digest(nil)+`"}`, 1000))
			}
			return strings.Contains(r.URL.Path, "/referrers/")
		},
		"a referrer without layers": func(w http.ResponseWriter, r *http.Request, _ int64, name string) bool {
			text := about(name)
			switch {
			case strings.Contains(r.URL.Path, "/referrers/"):
				w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
				fmt.Fprint(w, index(fmt.Sprintf(`{"mediaType":%q,"size":%d,"digest":%q,"artifactType":"application/vnd.starling.tool-signature.v1"}`, manifestType, len(text), digest([]byte(text))), 0))
			case strings.HasSuffix(r.URL.Path, digest([]byte(text))):
				w.Header().Set("Content-Type", manifestType)
				fmt.Fprint(w, text)
			default:
				return false
			}
			return true
		},
		"many layers of cosign": func(w http.ResponseWriter, r *http.Request, _ int64, _ string) bool {
			blob := []byte(strings.Repeat("x", 1<<20))
			switch {
			case strings.HasSuffix(r.URL.Path, ".sig"):
				blobs, layers := map[string][]byte{}, []any{}
				for range 1000 {
					layers = append(layers, "application/vnd.dev.cosign.simplesigning.v1+json", blob)
				}
				w.Header().Set("Content-Type", manifestType)
				fmt.Fprint(w, strings.ReplaceAll(manifestOf(blobs, layers...), `"annotations":{`, `"annotations":{"dev.cosignproject.cosign/signature":"AAAA",`))
			case strings.HasSuffix(r.URL.Path, digest(blob)):
				_, _ = w.Write(blob)
			default:
				return false
			}
			return true
		},
		"no digest": nil,
	} {
		t.Run(what, func(t *testing.T) {
			var asked atomic.Int64
			name, pulling := "", false
			addr := ocitest.Registry(t, func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case pulling && answer == nil:
						h.ServeHTTP(strip{w, "Docker-Content-Digest"}, r)
					case !pulling || !answer(w, r, asked.Add(1), name):
						h.ServeHTTP(w, r)
					}
				})
			})
			name = push(t, finder(t), "oci://"+addr+"/tools/dice:1.0", module)
			pulling = true
			found, err := finder(t).Find(t.Context(), name[:strings.LastIndex(name, "@")])
			if err != nil || !bytes.Equal(found.Wasm, module) {
				t.Errorf("the module does not come: %v", err)
			}
			if n := asked.Load(); n > 3<<20>>10 { // what the budget of a resolution allows
				t.Errorf("the registry was asked %d times", n)
			}
		})
	}
}
