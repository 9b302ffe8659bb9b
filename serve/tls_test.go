package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReload has a host that serves read a new certificate, and keep it when the next
// one is half written. One that has expired is said to clients and to the operator.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	files := FileTLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	var log strings.Builder
	h := &Host{file: &File{TLS: files}, logger: slog.New(slog.NewTextHandler(&log, nil)), found: resolved{certificate: &Certificate{Files: files}}}
	server := h.found.certificate.config()
	shown := func() int64 {
		t.Helper()
		pair, err := server.GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.SerialNumber.Int64()
	}
	said := func(want string) {
		t.Helper()
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
		log.Reset()
	}

	writeCertificate(t, files, 1, time.Now().Add(time.Hour))
	if err := h.found.certificate.Load(); err != nil || shown() != 1 {
		t.Fatal(err)
	}
	writeCertificate(t, files, 2, time.Now().Add(-time.Hour))
	h.reload()
	if shown() != 2 {
		t.Error("the one before is shown")
	}
	said("the certificate has expired")
	if err := os.WriteFile(string(files.Cert), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.reload()
	if shown() != 2 {
		t.Error("what cannot be read is shown")
	}
	said("certificate not read; keeping the old one")

	quiet := &Host{file: &File{}, logger: h.logger}
	if quiet.reload(); log.Len() > 0 {
		t.Errorf("a host without files says it has read them: %s", log.String())
	}
}

// writeCertificate writes one that ends at a time.
func writeCertificate(t *testing.T, files FileTLS, serial int64, end time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: end.Add(-24 * time.Hour), NotAfter: end}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		string(files.Cert): {Type: "CERTIFICATE", Bytes: cert}, string(files.Key): {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestThePolicyOfAnOperatorWarnsOfNamesOfTools: a tenant names its own tools, so such a
// rule is no bound for it.
func TestThePolicyOfAnOperatorWarnsOfNamesOfTools(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	for text, warns := range map[string]bool{
		"permissions: {network: {allow: [{host: api.example.com}]}, tools: {'*': {}}}":     false,
		"permissions: {network: {allow: [{host: api.example.com, tools: [weather]}]}}":     true,
		"permissions: {network: {allow: [{host: api.example.com}]}, tools: {weather: {}}}": true,
	} {
		if err := os.WriteFile(file, []byte("version: \"1.0\"\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		h := &Host{file: &File{Policy: file}, logger: slog.New(slog.NewTextHandler(&log, nil))}
		if err := h.loadPolicy(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log.String(), "a tenant names the tools") != warns {
			t.Errorf("%s: %q", text, log.String())
		}
	}
}
