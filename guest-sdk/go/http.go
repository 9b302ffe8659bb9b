package starling

import (
	"errors"
	"strconv"
	"strings"

	"github.com/starling-host/starling/guest-sdk/go/internal/hostcall"
)

// The reasons for which an exchange fails. The functions of this package
// return an *[HTTPError] in which errors.Is finds one of these.
var (
	// ErrDenied: policy does not allow the request. Asking again is useless.
	ErrDenied = errors.New("denied")
	// ErrNetwork: the name did not resolve, the connection or TLS failed, or
	// the peer broke the protocol.
	ErrNetwork = errors.New("network")
	// ErrTimeout: the exchange took longer than the host allows.
	ErrTimeout = errors.New("timeout")
	// ErrTooLarge: the request, or the response, is larger than the host allows.
	ErrTooLarge = errors.New("too large")
	// ErrMalformed: the request is malformed.
	ErrMalformed = errors.New("malformed request")
)

// HTTPError is an exchange without a response. Unless a tool marks it
// otherwise, a call that returns one fails as [KindTransient] for ErrNetwork
// and ErrTimeout, as [KindCancel] for ErrDenied, and else as [KindTool].
type HTTPError struct {
	Reason error  // one of the Err values above
	Text   string // the host's message
}

func (e *HTTPError) Error() string {
	if e.Text == "" {
		return "http: " + e.Reason.Error()
	}
	return "http: " + e.Reason.Error() + ": " + e.Text
}

// Unwrap returns the reason.
func (e *HTTPError) Unwrap() error { return e.Reason }

// Timeout reports whether the exchange took too long, as in net.Error.
func (e *HTTPError) Timeout() bool { return e.Reason == ErrTimeout }

// Temporary reports whether another attempt may help, as in net.Error.
func (e *HTTPError) Temporary() bool { return e.errorKind() == KindTransient }

func (e *HTTPError) errorKind() Kind {
	switch e.Reason {
	case ErrNetwork, ErrTimeout:
		return KindTransient
	case ErrDenied:
		return KindCancel
	default:
		return KindTool
	}
}

func malformed(text string) error { return &HTTPError{Reason: ErrMalformed, Text: text} }

// reason translates a status of the http import.
func reason(status int64) error {
	switch status {
	case hostcall.StatusDenied:
		return ErrDenied
	case hostcall.StatusTimeout:
		return ErrTimeout
	case hostcall.StatusTooLarge:
		return ErrTooLarge
	case hostcall.StatusMalformed:
		return ErrMalformed
	default: // hostcall.StatusNetwork, and statuses of later hosts
		return ErrNetwork
	}
}

const (
	// firstBuffer is offered to the host for an answer. A larger one costs a
	// second import call, but no second exchange.
	firstBuffer = 32 << 10
	// maxAnswer is the largest answer that fits the address space of a module.
	maxAnswer = 1<<31 - 1
)

// HTTP makes one exchange. The request is in message/http form (RFC 9112): a
// request line with an absolute URL, header fields, an empty line, and the
// body, whose length Content-Length gives. The response has the same form.
// Redirects are responses like any other. The error is an *[HTTPError].
//
// Most tools are better served by [Get] and [Do].
func HTTP(request []byte) (response []byte, err error) {
	if len(request) == 0 {
		return nil, malformed("the request is empty")
	}
	buf := make([]byte, firstBuffer)
	n := hostcall.HTTP(nameEffect(request), buf)
	if n >= 0 {
		return take(n, buf)
	}
	text, err := take(hostcall.HTTP(nil, buf), buf)
	if err != nil { // the host holds no text
		text = nil
	}
	return nil, &HTTPError{Reason: reason(n), Text: string(text)}
}

// take returns the answer of n bytes. If buf was too small for it the host
// still holds it, and a larger buffer fetches it.
func take(n int64, buf []byte) ([]byte, error) {
	if n > int64(len(buf)) && n <= maxAnswer {
		buf = make([]byte, n)
		n = hostcall.HTTP(nil, buf)
	}
	if n < 0 || n > int64(len(buf)) {
		return nil, &HTTPError{Reason: ErrNetwork, Text: "the host answers with " + strconv.FormatInt(n, 10) + " and holds no such response"}
	}
	return buf[:n:n], nil
}

// Header is a list of header fields, each a name and a value, in the order in
// which they are sent or were received.
type Header [][2]string

// Get returns the value of the first field with this name, in any case, or "".
func (h Header) Get(name string) string {
	for _, field := range h {
		if strings.EqualFold(field[0], name) {
			return field[1]
		}
	}
	return ""
}

func (h Header) has(name string) bool {
	for _, field := range h {
		if strings.EqualFold(field[0], name) {
			return true
		}
	}
	return false
}

// Request is an HTTP request to send with [Do].
type Request struct {
	// Method is the method. Empty: GET.
	Method string
	// URL is absolute, http or https. Letters of other scripts are
	// percent-encoded in the path and the query, and refused in the host; other
	// characters that a URL cannot have are refused, see [PathEscape]. A
	// fragment is not sent. User and password are refused.
	URL string
	// Header is sent unchanged. Host, Content-Length, Transfer-Encoding and
	// Connection are refused: they follow from the rest of the request.
	Header Header
	// Body is sent unchanged.
	Body []byte
}

// Response is an HTTP response.
type Response struct {
	Status int // for instance 200; statuses of failure are responses too
	Header Header
	Body   []byte // complete
}

// Get makes the request GET url.
func Get(url string) (*Response, error) { return Do(Request{URL: url}) }

// Do makes one exchange. Redirects are not followed. A request that cannot be
// sent is an [ErrMalformed], and a response that cannot be read an
// [ErrNetwork].
//
// Do does not ask for compression. If a server compresses the response anyway, it is
// an [ErrNetwork]; package starlinghttp undoes gzip and deflate. A request with a
// header Accept-Encoding gets the response as it was sent.
func Do(r Request) (*Response, error) {
	message, err := r.message()
	if err != nil {
		return nil, err
	}
	answer, err := HTTP(message)
	if err != nil {
		return nil, err
	}
	response, err := parseResponse(answer, r.Method == "HEAD")
	if err != nil {
		return nil, &HTTPError{Reason: ErrNetwork, Text: err.Error()}
	}
	if packed := response.Header.Get("Content-Encoding"); packed != "" && !strings.EqualFold(packed, "identity") && len(response.Body) > 0 && !r.Header.has("Accept-Encoding") {
		return nil, &HTTPError{Reason: ErrNetwork, Text: "the response is compressed with " + strconv.Quote(packed) + ": a client of package starlinghttp undoes gzip and deflate; to read it yourself, send the header Accept-Encoding"}
	}
	return response, nil
}
