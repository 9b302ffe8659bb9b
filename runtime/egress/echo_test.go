package egress

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"html"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/treetest"
)

const echoed = "sk-Live_4eC39HqLyjWD"

// An echo server decodes its input in every charset and coding that its language knows
// and the request names, and returns all of the readings. No piece of the secret comes
// back, whatever stands around its placeholder.
func TestNoEchoInAnyCharsetOrCodingHasASecret(t *testing.T) {
	t.Run("go", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(goEcho))
		defer server.Close()
		leaksNothing(t, server.URL, []string{"utf-7", "utf-16", "gbk", "shift_jis", "us-ascii", "iso-8859-1"})
	})
	for language, command := range map[string][]string{"python": {"python3", "echo.py"}, "node": {"node", "echo.js"}} {
		t.Run(language, func(t *testing.T) {
			treetest.Needs(t, command[0])
			cmd := exec.CommandContext(t.Context(), command[0], filepath.Join("testdata", command[1]))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			port, names, _ := strings.Cut(strings.TrimSpace(line), " ")
			leaksNothing(t, "http://127.0.0.1:"+port, strings.Fields(names))
		})
	}
}

// leaksNothing sends the placeholder in every place with every charset and coding.
func leaksNothing(t *testing.T, server string, charsets []string) {
	const p, form, part = "{{secret:K}}", "application/x-www-form-urlencoded", "multipart/form-data; boundary=B"
	client := New(Config{Authorize: granting{value: echoed, plain: true}})
	sent := 0
	try := func(query, body string, header ...string) {
		t.Helper()
		r := &Request{Method: "POST", URL: server + "/" + query, Header: http.Header{}, Body: []byte(body)}
		for i := 0; i < len(header); i += 2 {
			if header[i+1] != "" {
				r.Header.Set(header[i], header[i+1])
			}
		}
		got, err := client.Do(context.Background(), r, "")
		var refused *Error
		if errors.As(err, &refused) && (refused.Status == abi.StatusDenied || refused.Status == abi.StatusMalformed) {
			return
		}
		if err != nil {
			t.Fatalf("%s %q %q: %v", query, body, header, err)
		}
		sent++
		for i := range len(echoed) - 5 {
			if at := strings.Index(strings.ToLower(string(got)), strings.ToLower(echoed[i:i+6])); at >= 0 {
				t.Errorf("%q of %s %q %q came back: %q", echoed[i:i+6], query, body, header, got[max(0, at-20):min(len(got), at+30)])
				return
			}
		}
	}
	around := []string{"", "x", "\x81", "\x88", "\xa4", "\xc3", "\x8f\xa1", "\x81\x30", "\xe4\xb8", "ü", "中", "~{", "\x1b$B", "\x0e", "+", "\ufeff", "\xfe\xff", "\x00", "%81", "%u00", `\u00`, `\u0081`, `\x8`, `\U0001f6`, `\U0000`, `\x{`, "20:", "&#x", "&#129;", "&", "=", "=8", "=?gbk?B?", "=?utf-16?Q?"}
	for _, charset := range append(charsets, "") {
		kind := func(base string) string {
			if charset == "" {
				return base
			}
			return base + "; charset=" + charset
		}
		some := around
		if charset != "" && testing.Short() {
			some = around[:5]
		}
		for _, a := range some {
			escaped := url.QueryEscape(a)
			try("", a+p, "Content-Type", kind("text/plain"))
			try("", p+a, "Content-Type", kind("text/plain"))
			try("", "a="+escaped+p, "Content-Type", kind(form))
			try("", "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"+a+p+a+"\r\n--B--", "Content-Type", part)
			try("", `{"a":"`+a+p+a+`"}`, "Content-Type", kind("application/json"))
			try("?a="+escaped+p+escaped, "", "Content-Type", kind("text/plain"))
			if charset == "" {
				try("", "x", "X-A", a+p)
				try("", "x", "X-A", p+a+"41")
			}
		}
		if charset == "" {
			continue
		}
		try("?_charset_="+charset+"&a="+p, "")
		try("", "_charset_="+charset+"&a="+p, "Content-Type", form)
		try("", "x", "X-A", "=?"+charset+"?Q?"+p+"?=")
		try("", "x", "X-A", "=?"+charset+" ?Q?"+p+"?=")
		try("", p, "Content-Type", "text/plain; charset(a)="+charset)
		try("", p, "Content-Type", "text/plain; charset (a) = "+charset)
		for _, name := range []string{"_charset_", "charset", "b\"; filename=\"b"} {
			try("", "--B\r\nContent-Disposition: form-data; name=\""+name+"\"\r\nContent-Type: text/plain; charset="+charset+"\r\n\r\n"+charset+"\xff\x1b$B\x00\r\n--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"+p+"\r\n--B--", "Content-Type", part)
		}
		try("", `{"charset*":"a*=`+charset+`'","a":"`+p+`"}`+"\n", "Content-Type", "application/x-ndjson")
		try("", "--B\r\nContent-Disposition: form-data; name=\"a\"; filename=\"=?"+charset+"\r\n ?q?"+p+"?=\"\r\n\r\nx\r\n--B--", "Content-Type", part)
		try("", "x", "Content-Disposition", "form-data; name*="+charset+"''"+p)
		try("", "<?xml version='1.0' encoding='"+charset+"'?><a>"+p+"</a>", "Content-Type", "text/xml")
		try("", `<meta charset="`+charset+`">`+p, "Content-Type", "text/html")
		try("", "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: text/plain; charset="+charset+"\r\n\r\n"+p+"\r\n--B--", "Content-Type", part)
		try("", "--B\r\nContent-Disposition: form-data; name=\"_charset_\"\r\n\r\n"+charset+"\r\n--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"+p+"\r\n--B--", "Content-Type", part)
	}
	for _, coding := range []string{"base64", "quoted-printable", "x-uuencode", "7bit", "binary"} {
		try("", "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Transfer-Encoding: "+coding+"\r\n\r\n"+p+"\r\n--B--", "Content-Type", part)
		try("", p, "Content-Type", "text/plain", "Content-Transfer-Encoding", coding)
	}
	for name, body := range packedPlaceholders(p) {
		for _, coding := range []string{"", name, "identity"} {
			try("", body, "Content-Type", "application/octet-stream", "Content-Encoding", coding)
		}
	}
	if sent < 5 {
		t.Errorf("only %d requests were sent", sent)
	}
}

// packedPlaceholders returns stored blocks with a plain placeholder, in each wrapping,
// for a value of the length of the secret.
func packedPlaceholders(p string) map[string]string {
	head := binary.LittleEndian.AppendUint16([]byte{1}, uint16(len(echoed)))
	head = binary.LittleEndian.AppendUint16(head, ^uint16(len(echoed)))
	stored := string(head) + p
	return map[string]string{
		"deflate": stored, "zlib": "\x78\x01" + stored + "\x00\x00\x00\x00", "gzip": "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + stored + "\x00\x00\x00\x00\x14\x00\x00\x00",
		"br": "\x8b\x09\x80" + p + "\x03", "zstd": "\x28\xb5\x2f\xfd\x20\x14\xa1\x00\x00" + p,
	}
}

// goEcho is an echo server that reads a request in every way that Go's library knows.
func goEcho(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	raws := [][]byte{body}
	for _, open := range []func() (io.Reader, error){
		func() (io.Reader, error) { return gzip.NewReader(bytes.NewReader(body)) },
		func() (io.Reader, error) { return flate.NewReader(bytes.NewReader(body)), nil },
		func() (io.Reader, error) { return quotedprintable.NewReader(bytes.NewReader(body)), nil },
	} {
		if in, err := open(); err == nil {
			text, _ := io.ReadAll(in)
			raws = append(raws, text)
		}
	}
	if _, params, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && params["boundary"] != "" {
		parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
		for part, err := parts.NextPart(); err == nil; part, err = parts.NextPart() {
			text, _ := io.ReadAll(part)
			raws = append(raws, text, []byte(part.FormName()))
		}
	}
	decoder := mime.WordDecoder{CharsetReader: func(_ string, in io.Reader) (io.Reader, error) { return in, nil }}
	for name, values := range r.Header {
		for _, v := range values {
			word, _ := decoder.DecodeHeader(v)
			raws = append(raws, []byte(textproto.TrimString(name)), []byte(v), []byte(word))
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ParseForm()
	for k, values := range r.Form {
		raws = append(raws, []byte(k), []byte(strings.Join(values, "\n")))
	}
	for _, raw := range raws {
		fmt.Fprintf(w, "%s\n%q\n%+q\n%s\n", raw, raw, raw, html.UnescapeString(string(raw)))
		text, _ := url.QueryUnescape(string(raw))
		fmt.Fprintln(w, strings.ToValidUTF8(text, "\ufffd"))
	}
}
