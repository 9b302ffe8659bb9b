package starling

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// parseResponse reads a response in message/http form, such as, with each line
// ended by CR LF:
//
//	HTTP/1.1 200 OK
//	Content-Type: text/plain
//	Content-Length: 2
//	(an empty line)
//	hi
//
// The host hands over whole bodies, so everything after the empty line is the
// body, and a different Content-Length is an error. headOnly: the request was
// a HEAD, whose response has the length of a body but no body.
func parseResponse(message []byte, headOnly bool) (*Response, error) {
	head, body, found := bytes.Cut(message, []byte("\r\n\r\n"))
	if !found {
		return nil, errors.New("the header of the response has no end")
	}
	statusLine, fields, _ := strings.Cut(string(head), "\r\n")
	status, err := parseStatusLine(statusLine)
	if err != nil {
		return nil, err
	}
	header, err := parseFields(fields)
	if err != nil {
		return nil, err
	}
	bodiless := headOnly || status == 204 || status == 304
	if err := checkFraming(header, len(body), bodiless); err != nil {
		return nil, err
	}
	return &Response{Status: status, Header: header, Body: body}, nil
}

func parseStatusLine(line string) (int, error) {
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if !strings.HasPrefix(version, "HTTP/") || len(code) != 3 || err != nil || status < 100 || !isFieldValue(strings.TrimRight(line, " ")) {
		return 0, errors.New("the response begins with " + strconv.Quote(line))
	}
	return status, nil
}

func parseFields(fields string) (Header, error) {
	var header Header
	for line := range strings.SplitSeq(fields, "\r\n") {
		if line == "" {
			continue // there are no fields at all
		}
		name, value, found := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !found || !isToken(name) || !isFieldValue(value) {
			return nil, errors.New("the response has the header line " + strconv.Quote(line))
		}
		header = append(header, [2]string{name, value})
	}
	return header, nil
}

func checkFraming(header Header, bodyLen int, bodiless bool) error {
	for _, field := range header {
		switch strings.ToLower(field[0]) {
		case "transfer-encoding":
			return errors.New("the response has the transfer encoding " + strconv.Quote(field[1]))
		case "content-length":
			if n, err := strconv.ParseUint(field[1], 10, 63); err != nil || !bodiless && n != uint64(bodyLen) {
				return errors.New("the response has " + strconv.Itoa(bodyLen) + " bytes of body and the Content-Length " + strconv.Quote(field[1]))
			}
		}
	}
	if bodiless && bodyLen > 0 {
		return errors.New("the response has an unexpected body")
	}
	return nil
}
