package abi

import "strconv"

// Status is a negative result of the http import: the exchange failed in a way
// that the guest can handle. Its text is fetched like a response, with
// http(0, 0, buf, cap).
type Status int32

const (
	// StatusDenied: policy does not allow the request. Asking again is useless.
	StatusDenied Status = -1
	// StatusNetwork: the name did not resolve, the connection or TLS failed, or
	// the peer broke the protocol.
	StatusNetwork Status = -2
	// StatusTimeout: the exchange took longer than the host allows.
	StatusTimeout Status = -3
	// StatusTooLarge: the request, or the response or its headers, is larger
	// than the host allows.
	StatusTooLarge Status = -4
	// StatusMalformed: the guest's request is not a message/http request.
	StatusMalformed Status = -5
	// StatusNothingHeld: http(0, 0, buf, cap) was called with no response held.
	StatusNothingHeld Status = -6
)

var statusNames = map[Status]string{
	StatusDenied:      "denied",
	StatusNetwork:     "network",
	StatusTimeout:     "timeout",
	StatusTooLarge:    "too_large",
	StatusMalformed:   "malformed",
	StatusNothingHeld: "nothing_held",
}

// String returns the status's name as the log records it.
func (s Status) String() string {
	if name, ok := statusNames[s]; ok {
		return name
	}
	return "status(" + strconv.Itoa(int(s)) + ")"
}
