package bedrock

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// signer signs requests as AWS requires, with Signature Version 4.
//
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
type signer struct {
	keyID, secret, token string // the token is empty for a long-term key
	region, service      string
}

// sign adds the signature, and the headers it needs, to a request whose URL has no
// query. It covers the host and all headers set by then.
func (s signer) sign(method string, u *url.URL, h http.Header, body []byte, at time.Time) {
	date := at.UTC().Format("20060102T150405Z")
	h.Set("X-Amz-Date", date)
	if s.token != "" {
		h.Set("X-Amz-Security-Token", s.token)
	}
	values := map[string]string{"host": u.Host}
	for name, all := range h {
		var trimmed []string
		for _, value := range all {
			trimmed = append(trimmed, strings.Join(strings.Fields(value), " "))
		}
		values[strings.ToLower(name)] = strings.Join(trimmed, ",")
	}
	names := slices.Sorted(maps.Keys(values))
	var headers strings.Builder
	for _, name := range names {
		headers.WriteString(name + ":" + values[name] + "\n")
	}
	signed := strings.Join(names, ";")

	// Every service but S3 escapes the path a second time.
	segments := strings.Split(u.EscapedPath(), "/")
	for i := range segments {
		segments[i] = escape(segments[i])
	}
	request := strings.Join([]string{method, strings.Join(segments, "/"), "", headers.String(), signed, digest(body)}, "\n")

	const algorithm, last = "AWS4-HMAC-SHA256", "aws4_request"
	scope := strings.Join([]string{date[:8], s.region, s.service, last}, "/")
	key := []byte("AWS4" + s.secret)
	for _, part := range []string{date[:8], s.region, s.service, last} {
		key = mac(key, part)
	}
	signature := mac(key, strings.Join([]string{algorithm, date, scope, digest([]byte(request))}, "\n"))
	h.Set("Authorization", algorithm+" Credential="+s.keyID+"/"+scope+", SignedHeaders="+signed+", Signature="+hex.EncodeToString(signature))
}

// escape escapes all but letters, digits and "-._~".
func escape(segment string) string { return strings.ReplaceAll(url.QueryEscape(segment), "+", "%20") }

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
