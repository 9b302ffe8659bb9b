package egress

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// Response is a response that [Client.Do] returned, taken apart.
type Response struct {
	Status int // for instance 200
	Header http.Header
	Body   []byte
}

// ParseResponse reads what [Client.Do] returned for a request that was not HEAD.
func ParseResponse(raw []byte) (*Response, error) {
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	return &Response{Status: res.StatusCode, Header: res.Header, Body: body}, nil
}
