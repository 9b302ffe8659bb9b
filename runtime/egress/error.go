package egress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/starling-host/starling/abi"
)

// maxErrorText bounds the text of an [Error], in bytes.
const maxErrorText = 512

// Error is a failure that a guest can handle. It is recorded, so its text is
// stable: the same request to the same world gives the same bytes.
type Error struct {
	// Status is the result of the http import.
	Status abi.Status
	// Text is one line of valid UTF-8 for the author of the guest, at most 512
	// bytes.
	Text string
}

// Error returns "egress: ", the status and the text.
func (e *Error) Error() string {
	return fmt.Sprintf("egress: %v: %s", e.Status, e.Text)
}

// Transient reports whether the same request may succeed when it is made again.
func (e *Error) Transient() bool {
	return e.Status == abi.StatusNetwork || e.Status == abi.StatusTimeout
}

func failf(status abi.Status, format string, args ...any) *Error {
	text := strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText-3], "") + "..."
	}
	return &Error{Status: status, Text: text}
}

func malformed(format string, args ...any) *Error {
	return failf(abi.StatusMalformed, format, args...)
}

// quote shows hostile text in an error: escaped, and short enough that the hint
// that follows it is not cut off.
func quote(s string) string {
	const limit = 120
	if len(s) > limit {
		return fmt.Sprintf("%+q...", s[:limit])
	}
	return fmt.Sprintf("%+q", s)
}

// networkReason names the failure on the way to a server. The texts of the
// standard library hold local ports, resolver addresses and the current time,
// so none of them is passed on.
func networkReason(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host"
	case errors.As(err, &dns):
		return "the name could not be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to the host"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the server reset the connection"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the server closed the connection before the response was complete"
	}
	return tlsReason(err)
}

func tlsReason(err error) string {
	var (
		name      x509.HostnameError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		alert     *net.OpError
		verify    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &name):
		return "the certificate is for another host"
	case errors.As(err, &authority):
		return "the certificate is signed by an unknown authority"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate has expired or is not yet valid"
	case errors.As(err, &verify):
		return "the certificate is not valid"
	case errors.As(err, &record):
		return "the server does not speak TLS"
	case errors.As(err, &alert) && alert.Op == "remote error":
		return "the server refused the TLS handshake"
	}
	return "the connection failed"
}
