package starlinghttp

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/internal/hostcall"
)

// Transport is an http.RoundTripper whose exchanges are made by the host. The
// zero value is ready for use.
type Transport struct{}

// Client returns a client that uses [Transport] and is otherwise the zero
// client: it follows redirects and has only the host's timeout.
func Client() *http.Client { return &http.Client{Transport: Transport{}} }

// RoundTrip makes one exchange. Inside [starling.SideEffect], or with a header
// Starling-Effect, it is recorded under that name.
func (Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	message, err := message(req)
	if err != nil {
		return nil, err
	}
	if err := over(req.Context()); err != nil {
		return nil, err
	}
	answer, err := starling.HTTP(message) // the clock moves by the time that it takes
	if err != nil {
		return nil, err
	}
	if err := over(req.Context()); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), req)
	if err != nil {
		return nil, &starling.HTTPError{Reason: starling.ErrNetwork, Text: err.Error()}
	}
	if err := unpack(resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// maxBody is the largest decoded body. A module has little memory, and a small response can
// expand a thousandfold.
const maxBody = 32 << 20

// unpack undoes the coding of a response to a request that did not ask for one: some servers
// always compress.
func unpack(resp *http.Response) error {
	packed := resp.Header.Get("Content-Encoding")
	if packed == "" || len(resp.Request.Header["Accept-Encoding"]) > 0 {
		return nil
	}
	raw, err := io.ReadAll(resp.Body) // which is in memory
	if err == nil && len(raw) == 0 {
		return nil // the response to a HEAD
	}
	plain := io.Reader(bytes.NewReader(raw))
	switch strings.ToLower(packed) {
	case "identity":
	case "gzip", "x-gzip":
		plain, err = gzip.NewReader(plain)
	case "deflate":
		if plain, err = zlib.NewReader(plain); err != nil { // some servers leave out the header of zlib
			plain, err = flate.NewReader(bytes.NewReader(raw)), nil
		}
	default:
		return &starling.HTTPError{Reason: starling.ErrNetwork, Text: "the response is compressed with " + strconv.Quote(packed) +
			", and the SDK reads gzip and deflate: to read it yourself, send the header Accept-Encoding"}
	}
	var body []byte
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(plain, maxBody+1))
	}
	switch {
	case err != nil:
		return &starling.HTTPError{Reason: starling.ErrNetwork, Text: "the compressed response is corrupt or cut short"}
	case len(body) > maxBody:
		return &starling.HTTPError{Reason: starling.ErrTooLarge, Text: "decompressed, the response is larger than " + strconv.Itoa(maxBody>>20) + " MiB"}
	}
	resp.Body, resp.ContentLength, resp.Uncompressed = io.NopCloser(bytes.NewReader(body)), -1, true
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	return nil
}

// over returns why ctx has ended. It compares the deadline with the clock itself, and
// waits for the timers that were due before it, such as that of an http.Client.
func over(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		time.Sleep(time.Nanosecond)
		return context.DeadlineExceeded
	}
	return nil
}

// message returns the request in message/http form and closes its body.
// Connection-specific headers are left out.
func message(req *http.Request) ([]byte, error) {
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	if req.URL == nil {
		return nil, errors.New("starlinghttp: the request has no URL")
	}
	if req.Host != "" && req.Host != req.URL.Host {
		return nil, fmt.Errorf("starlinghttp: the request is for the host %s of its URL, its field Host cannot name another: %s", req.URL.Host, req.Host)
	}
	if err := checkHeader(req.Header); err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if len(body) == 0 {
		out.Body = http.NoBody
	}
	out.TransferEncoding, out.Trailer, out.Close = nil, nil, false
	out.Header.Del("Expect")
	out.URL.RawQuery = escapeLetters(out.URL.RawQuery)
	if deadline, timed := req.Context().Deadline(); timed {
		out.Header.Set(hostcall.TimeoutHeader, strconv.FormatInt(min(max(1, time.Until(deadline).Milliseconds()), math.MaxUint32), 10))
	}
	var message bytes.Buffer
	if err := out.WriteProxy(&message); err != nil {
		return nil, fmt.Errorf("starlinghttp: %w", err)
	}
	return message.Bytes(), nil
}

// escapeLetters percent-encodes the characters that a query cannot contain when sent. net/url
// leaves a query as it was written.
func escapeLetters(query string) string {
	var b strings.Builder
	for _, c := range []byte(query) {
		if c <= ' ' || c >= 0x7f || c == '\\' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// checkHeader refuses headers that WriteProxy would silently drop or change,
// as http.Transport does.
func checkHeader(header http.Header) error {
	for name, values := range header {
		for _, value := range append(slices.Clip(values), name) {
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("starlinghttp: the header %q holds a control character: %q", name, value)
			}
		}
	}
	return nil
}

func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(req.Body)
	if err = errors.Join(err, req.Body.Close()); err != nil {
		return nil, fmt.Errorf("starlinghttp: request body: %w", err)
	}
	if req.ContentLength > 0 && req.ContentLength != int64(len(body)) {
		return nil, fmt.Errorf("starlinghttp: the request body has %d bytes, and its ContentLength is %d", len(body), req.ContentLength)
	}
	return body, nil
}
