package bedrock

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// New returns the provider. It takes the region and a bearer token or an access key from the variables
// that AWS's own programs use, and fails without them, or with an invalid base URL. The key is
// checked only when it is used.
func New(c converse.Config) (provider.Provider, error) {
	c.ID, c.APIVersion = cmp.Or(c.ID, "bedrock"), "2023-09-30"
	if c.Getenv == nil {
		c.Getenv = func(string) string { return "" }
	}
	s := signer{
		keyID: c.Getenv("AWS_ACCESS_KEY_ID"), secret: c.Getenv("AWS_SECRET_ACCESS_KEY"),
		token:  c.Getenv("AWS_SESSION_TOKEN"), // empty for a long-term key
		region: cmp.Or(c.Region, c.Getenv("AWS_REGION"), c.Getenv("AWS_DEFAULT_REGION")), service: "bedrock",
	}
	bearer := c.Getenv("AWS_BEARER_TOKEN_BEDROCK") // enough alone, as for AWS's own programs
	switch {
	case bearer == "" && (s.keyID == "" || s.secret == ""):
		return nil, errors.New("bedrock needs the environment variable AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, " +
			"which `aws configure export-credentials --format env` prints for a profile")
	case s.region == "":
		return nil, errors.New("bedrock: no region: set the environment variable AWS_REGION, or the key region of the agent's file")
	case !regexp.MustCompile(`^[A-Za-z0-9-]+$`).MatchString(s.region):
		return nil, fmt.Errorf("bedrock: %q cannot be a region: it has letters, digits and hyphens", s.region)
	}
	u, err := converse.ParseBase("bedrock", cmp.Or(c.BaseURL, "https://bedrock-runtime."+s.region+"."+domain(s.region)))
	if err != nil {
		return nil, err
	}
	if bearer != "" && u.Scheme != "https" {
		return nil, errors.New("bedrock: the key in AWS_BEARER_TOKEN_BEDROCK is only sent over https, and the base URL is not")
	}
	endpoint := u.Scheme + "://" + u.Host + strings.TrimSuffix(u.EscapedPath(), "/")
	return &converse.API{
		Config: c, Name: "bedrock", Key: cmp.Or(bearer, s.token), Fault: fault, Untyped: true,
		Events:    func(body io.Reader) converse.Events { return &frameReader{body} },
		RequestID: func(h http.Header) string { return cmp.Or(h.Get("X-Amzn-Requestid"), h.Get("X-Amz-Requestid")) },
		Translate: func(req *provider.Request) (*converse.Call, error) {
			body, err := translate(req)
			if err != nil {
				return nil, err
			}
			u, err := url.Parse(endpoint + "/model/" + escape(req.Model) + "/converse-stream")
			if err != nil {
				return nil, err
			}
			header := http.Header{"Content-Type": {"application/json"}}
			if bearer != "" {
				header.Set("Authorization", "Bearer "+bearer)
			} else {
				s.sign(http.MethodPost, u, header, body, time.Now())
			}
			return &converse.Call{URL: u.String(), Header: header, Body: body, Reader: &reader{}}, nil
		},
	}, nil
}

// domain returns the domain of the endpoints in a region. AWS has separate
// partitions, such as China's.
func domain(region string) string {
	for prefix, name := range map[string]string{
		"cn-": "amazonaws.com.cn", "eusc-": "amazonaws.eu", "us-iso-": "c2s.ic.gov", "us-isob-": "sc2s.sgov.gov",
		"eu-isoe-": "cloud.adc-e.uk", "us-isof-": "csp.hci.ic.gov",
	} {
		if strings.HasPrefix(region, prefix) {
			return name
		}
	}
	return "amazonaws.com"
}

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
		trimmed := lists.Map(all, func(value string) string { return strings.Join(strings.Fields(value), " ") })
		values[strings.ToLower(name)] = strings.Join(trimmed, ",")
	}
	names := slices.Sorted(maps.Keys(values))
	var headers strings.Builder
	for _, name := range names {
		headers.WriteString(name + ":" + values[name] + "\n")
	}
	signed := strings.Join(names, ";")

	// Every service but S3 escapes the path a second time.
	segments := lists.Map(strings.Split(u.EscapedPath(), "/"), escape)
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
