package bedrock_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/runtime/internal/bedrock"
	"github.com/starling-host/starling/runtime/provider"
)

// sessionToken is the test suite's.
const sessionToken = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/" +
	"qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+" +
	"scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="

// TestSign uses the test suite for Signature Version 4 that AWS published
// (aws-sig-v4-test-suite, now in github.com/awslabs/aws-c-auth under
// tests/aws-signing-test-suite/v4), without the requests that have a query. The suite
// escapes paths once. The last two, whose path is escaped twice, were signed by
// aws-sdk-go-v2 v1.47.6.
func TestSign(t *testing.T) {
	const (
		suite  = "https://example.amazonaws.com/"
		prompt = "https://bedrock-runtime.eu-central-1.amazonaws.com/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Aprompt%2FPROMPT12345%3A1/converse-stream"
	)
	mine := func(values ...string) http.Header { return http.Header{"My-Header1": values} }
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	document := http.Header{"Content-Type": {"application/json"}}
	for _, tc := range []struct {
		name, method, url, token string
		header                   http.Header
		body, signed, want       string
	}{
		{"get-vanilla", "GET", suite, "", http.Header{}, "", "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		{"get-unreserved", "GET", suite + "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "", http.Header{}, "", "host;x-amz-date",
			"07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
		{"get-header-key-duplicate", "GET", suite, "", mine("value2", "value2", "value1"), "", "host;my-header1;x-amz-date",
			"c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
		{"get-header-value-trim", "GET", suite, "", http.Header{"My-Header1": {" value1"}, "My-Header2": {` "a   b   c"`}}, "", "host;my-header1;my-header2;x-amz-date",
			"acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
		{"post-vanilla", "POST", suite, "", http.Header{}, "", "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		{"post-header-key-sort", "POST", suite, "", mine("value1"), "", "host;my-header1;x-amz-date", "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
		{"post-header-value-case", "POST", suite, "", mine("VALUE1"), "", "host;my-header1;x-amz-date", "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"},
		{"post-x-www-form-urlencoded", "POST", suite, "", form, "Param1=value1", "content-type;host;x-amz-date",
			"ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
		{"post-sts-header-before", "POST", suite, sessionToken, http.Header{}, "", "host;x-amz-date;x-amz-security-token",
			"85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
		{"a prompt", "POST", prompt, "", document.Clone(), `{"messages":[]}`, "content-type;host;x-amz-date", "9d8a038da30a9450bc33195a6efd5db3afab361c5e9d4fdee56b0da022123e8d"},
		{"a prompt, a temporary key", "POST", prompt, "token", document.Clone(), `{"messages":[]}`, "content-type;host;x-amz-date;x-amz-security-token",
			"21d63a38a54680c3968c33ee55da87bfe373ea355943532699be862375adcc97"},
	} {
		u, err := url.Parse(tc.url)
		if err != nil {
			t.Fatal(err)
		}
		region, service := "us-east-1", "service"
		if tc.url == prompt {
			region, service = "eu-central-1", "bedrock"
		}
		at := time.Date(2015, 8, 30, 14, 36, 0, 0, time.FixedZone("", 7200))
		bedrock.Sign("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", tc.token, region, service, tc.method, u, tc.header, []byte(tc.body), at)
		want := "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/" + region + "/" + service + "/aws4_request, SignedHeaders=" + tc.signed + ", Signature=" + tc.want
		if got := tc.header.Get("Authorization"); got != want || tc.header.Get("X-Amz-Security-Token") != tc.token || tc.header.Get("X-Amz-Date") != "20150830T123600Z" {
			t.Errorf("%s: got %s, %v\nwant %s", tc.name, got, tc.header, want)
		}
	}
}

// TestCredentials has the variables of the environment, and the headers sent for them.
func TestCredentials(t *testing.T) {
	for name, tc := range map[string]struct {
		env, region, base string
		host, auth, token string // which are sent
		want              string // of the error
	}{
		"a long-term key":       {"", "eu-west-1", "", "bedrock-runtime.eu-west-1.amazonaws.com", "AWS4-HMAC-SHA256 Credential=i/", "", ""},
		"a temporary key":       {"AWS_SESSION_TOKEN=secret", "eu-west-1", "", "bedrock-runtime.eu-west-1.amazonaws.com", "AWS4-HMAC-SHA256 Credential=i/", "secret", ""},
		"a key for Bedrock":     {"AWS_BEARER_TOKEN_BEDROCK=secret", "eu-west-1", "", "bedrock-runtime.eu-west-1.amazonaws.com", "Bearer secret", "", ""},
		"one without TLS":       {"AWS_BEARER_TOKEN_BEDROCK=secret", "eu-west-1", "http://localhost", "", "", "", "only sent over https"},
		"the region":            {"AWS_REGION=eu-west-2", "", "", "bedrock-runtime.eu-west-2.amazonaws.com", "AWS4-", "", ""},
		"the default region":    {"AWS_DEFAULT_REGION=eu-west-3", "", "", "bedrock-runtime.eu-west-3.amazonaws.com", "AWS4-", "", ""},
		"China":                 {"", "cn-north-1", "", "bedrock-runtime.cn-north-1.amazonaws.com.cn", "AWS4-", "", ""},
		"a government":          {"", "us-gov-west-1", "", "bedrock-runtime.us-gov-west-1.amazonaws.com", "AWS4-", "", ""},
		"a region that is none": {"", "us-east-1/x", "", "", "", "", `"us-east-1/x" cannot be a region`},
		"a gateway":             {"", "eu-west-1", "https://gateway:8443/aws/", "gateway:8443", "AWS4-", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := configuration()
			variable, value, _ := strings.Cut(tc.env, "=")
			c.Getenv = func(name string) string {
				return map[string]string{"AWS_ACCESS_KEY_ID": "i", "AWS_SECRET_ACCESS_KEY": "s", variable: value}[name]
			}
			c.Region, c.BaseURL = tc.region, tc.base
			var seen *http.Request
			c.HTTP = &http.Client{Transport: doer{nil, func(r *http.Request) { seen = r }}}
			p, err := bedrock.New(c)
			if err != nil {
				if tc.want == "" || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v, want %q", err, tc.want)
				}
				return
			}
			if _, err := p.Stream(t.Context(), &provider.Request{Model: "m"}); err != nil {
				t.Fatal(err)
			}
			if got := seen.Header.Get("Authorization"); tc.want != "" || seen.URL.Host != tc.host || !strings.HasPrefix(got, tc.auth) || seen.Header.Get("X-Amz-Security-Token") != tc.token {
				t.Errorf("got %s %v", seen.URL, seen.Header)
			}
			if want := strings.TrimPrefix(strings.TrimSuffix(tc.base, "/"), "https://gateway:8443") + "/model/m/converse-stream"; seen.URL.Path != want {
				t.Errorf("got the path %s, want %s", seen.URL.Path, want)
			}
		})
	}
}
