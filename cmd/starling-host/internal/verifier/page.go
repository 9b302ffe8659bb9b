package verifier

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/starling-host/starling/internal/work"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
	//go:embed worker.js
	pageWorker string
)

// Page returns a page that shows the runs of a bundle and verifies them in the browser that opens
// it, offline: it contains the program, and may neither load nor send anything. It names the given
// version.
func Page(bundle []byte, version string) ([]byte, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(bundle)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, err
	}
	plain, sum := sha256.New(), sha256.Sum256([]byte(glue+pageWorker))
	unpacked, err := gzip.NewReader(bytes.NewReader(program))
	if err == nil {
		_, err = io.Copy(plain, unpacked)
	}
	if err != nil {
		return nil, err
	}
	script := strings.NewReplacer("{{VERSION}}", strings.Map(plainCharacter, version),
		"{{PROGRAMSUM}}", hex.EncodeToString(plain.Sum(nil)), "{{CODESUM}}", hex.EncodeToString(sum[:])).Replace(pageScript)
	policy := "default-src 'none'; base-uri 'none'; form-action 'none'; worker-src blob:; style-src " + hashOf(pageStyle) +
		"; script-src " + hashOf(script) + " 'wasm-unsafe-eval'"
	page := strings.NewReplacer(
		"{{CSP}}", html.EscapeString(policy), "{{STYLE}}", pageStyle, "{{SCRIPT}}", script, "{{GLUE}}", glue, "{{WORKER}}", pageWorker,
		"{{PROGRAM}}", base64.StdEncoding.EncodeToString(program), "{{BUNDLE}}", base64.StdEncoding.EncodeToString(packed.Bytes()),
	).Replace(pageHTML)
	if err := work.For(context.Background(), len(page)).Hold(2 * len(bundle)); err != nil { // as in Bundle
		return nil, fmt.Errorf("the bundle is too large for a page, which must not unpack to more than its size allows: leave out --html")
	}
	return []byte(page), nil
}

// Bundle returns the bundle in a page that [Page] has made.
func Bundle(ctx context.Context, page []byte) ([]byte, error) {
	_, rest, found := bytes.Cut(page, []byte(`id="bundle">`))
	text, _, ended := bytes.Cut(rest, []byte("</script>"))
	if !found || !ended {
		return nil, errors.New("this page has no bundle in it")
	}
	var file []byte
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text)))
	if err == nil {
		file, err = work.For(ctx, len(page)).ReadAll(r)
	}
	if err != nil {
		return nil, fmt.Errorf("the bundle in this page cannot be unpacked: %w", err)
	}
	return file, nil
}

// plainCharacter drops what a version has no need of, and a script could end with.
func plainCharacter(r rune) rune {
	if strings.ContainsRune("+-.()", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return r
	}
	return '_'
}

// hashOf returns the source expression of an inline script or style for a content security policy.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
