package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
)

func TestPrivateDestinationsNeedAFullNameAndTheSwitch(t *testing.T) {
	host := answer(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	_, port, _ := net.SplitHostPort(host)
	for _, c := range []struct {
		name, rule, url string
		private         bool
		status          abi.Status // 0: reached
	}{
		{"a literal", host, "http://" + host + "/", true, 0},
		{"a literal without the switch", host, "http://" + host + "/", false, abi.StatusDenied},
		{"localhost", "localhost:" + port, "http://localhost:" + port + "/", true, 0},
		{"localhost without the switch", "localhost:" + port, "http://localhost:" + port + "/", false, abi.StatusDenied},
		{"a name", "db.example.com:" + port, "http://db.example.com:" + port + "/", true, 0},
		{"a name below a domain", ".example.com:" + port, "http://db.example.com:" + port + "/", true, abi.StatusDenied},
		{"every name", "*:" + port, "http://db.example.com:" + port + "/", true, abi.StatusDenied},
		{"another port", "127.0.0.1:1", "http://" + host + "/", true, abi.StatusDenied},
		{"no port in the rule", "127.0.0.1", "http://" + host + "/", true, abi.StatusDenied},
		{"no rule", "", "http://" + host + "/", true, abi.StatusDenied},
	} {
		t.Run(c.name, func(t *testing.T) {
			var allow []Rule
			if c.rule != "" {
				allow = rules(t, c.rule)
			}
			config := Config{Authorize: Rules{allow, c.private}, Resolve: resolveTo("127.0.0.1")}
			got, err := New(config).Do(context.Background(), get(c.url), "")
			if c.status != 0 {
				wantFailure(t, err, c.status, "allowed")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, body := parseResponse(t, "GET", got); body != "ok" {
				t.Errorf("body %q", body)
			}
		})
	}
}

func TestLocalhostResolves(t *testing.T) {
	host := answer(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	_, port, _ := net.SplitHostPort(host)
	if _, err := loopback(t, "localhost:"+port).Do(context.Background(), get("http://localhost:"+port+"/customers/42"), ""); err != nil {
		t.Error(err)
	}
}

func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	var asked atomic.Int64
	proxy := serve(t, func(net.Conn) { asked.Add(1) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://"+proxy)
	}
	var r recorder
	c := New(Config{Authorize: Rules{Allow: rules(t, "*")}, Resolve: resolveTo("1.1.1.1")})
	c.dial = r.dial
	c.Do(context.Background(), get("http://example.com/"), "")
	if fmt.Sprint(r.dialled) != "[1.1.1.1:80]" || asked.Load() != 0 {
		t.Errorf("connections to %v, %d to the proxy", r.dialled, asked.Load())
	}
}

func TestTheNextAddressIsTried(t *testing.T) {
	host := answer(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	_, port, _ := net.SplitHostPort(host)
	c := New(Config{Authorize: Rules{rules(t, "db.example.com:"+port), true}, Resolve: resolveTo("::1", "127.0.0.1")})
	if _, err := c.Do(context.Background(), get("http://db.example.com:"+port), ""); err != nil {
		t.Error(err)
	}
	var r recorder
	c = New(Config{Authorize: Rules{Allow: rules(t, "*")}, Resolve: resolveTo("1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4", "1.1.1.5")})
	c.dial = r.dial
	c.Do(context.Background(), get("http://example.com"), "")
	if len(r.dialled) != maxAttempts {
		t.Errorf("connections to %v", r.dialled)
	}
}

func TestResolverFailures(t *testing.T) {
	many := make([]string, maxAnswers+1)
	for i := range many {
		many[i] = fmt.Sprintf("1.1.1.%d", i)
	}
	for _, c := range []struct {
		name    string
		resolve func(context.Context, string) ([]netip.Addr, error)
		status  abi.Status
		text    string
	}{
		{"no answer", resolveTo(), abi.StatusNetwork, "example.com: no such host"},
		{"too many answers", resolveTo(many...), abi.StatusDenied, "more than 64 addresses"},
		{"no such name", func(context.Context, string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "x", Name: "example.com", Server: "10.0.0.53:53", IsNotFound: true}
		}, abi.StatusNetwork, "example.com: no such host"},
		{"a server that fails", func(context.Context, string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "x", Name: "example.com", Server: "10.0.0.53:53"}
		}, abi.StatusNetwork, "example.com: the name could not be resolved"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(Config{Authorize: Rules{Allow: rules(t, "*")}, Resolve: c.resolve}).Do(context.Background(), get("http://example.com"), "")
			wantFailure(t, err, c.status, c.text)
			if strings.Contains(err.Error(), "10.0.0.53") {
				t.Errorf("%q names the resolver", err)
			}
		})
	}
}

func TestTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %v", r.Proto, r.TLS.ServerName, r.TLS.DidResume)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = discardLog()
	server.StartTLS()
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	client := func(host string, roots *x509.CertPool) (*Client, *Request) {
		c := New(Config{Authorize: Rules{rules(t, host+":"+port), true}, Resolve: resolveTo("127.0.0.1")})
		c.roots = roots
		return c, get("https://" + host + ":" + port + "/")
	}
	t.Run("HTTP/1.1 and no session", func(t *testing.T) {
		c, r := client("example.com", roots)
		for range 2 {
			got, err := c.Do(context.Background(), r, "")
			if err != nil {
				t.Fatal(err)
			}
			if _, body := parseResponse(t, "GET", got); body != "HTTP/1.1 example.com false" {
				t.Errorf("%q", body)
			}
		}
	})
	t.Run("an address in the certificate", func(t *testing.T) {
		c, r := client("127.0.0.1", roots)
		if _, err := c.Do(context.Background(), r, ""); err != nil {
			t.Error(err)
		}
	})
	t.Run("an unknown authority", func(t *testing.T) {
		c, r := client("example.com", x509.NewCertPool())
		_, err := c.Do(context.Background(), r, "")
		wantFailure(t, err, abi.StatusNetwork, "example.com:"+port+": the certificate is signed by an unknown authority")
	})
	t.Run("another name", func(t *testing.T) {
		c, r := client("other.test", roots)
		_, err := c.Do(context.Background(), r, "")
		wantFailure(t, err, abi.StatusNetwork, "the certificate is for another host")
	})
	t.Run("http to an https port", func(t *testing.T) {
		c, r := client("example.com", roots)
		r.URL = strings.Replace(r.URL, "https", "http", 1)
		got, err := c.Do(context.Background(), r, "")
		if err != nil {
			t.Fatal(err)
		}
		if res, _ := parseResponse(t, "GET", got); res.StatusCode != 400 {
			t.Errorf("status %d", res.StatusCode)
		}
	})
}

func TestTLSFailures(t *testing.T) {
	t.Run("a server that does not speak TLS", func(t *testing.T) {
		host := answer(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
		_, err := loopback(t, host).Do(context.Background(), get("https://"+host), "")
		wantFailure(t, err, abi.StatusNetwork, "the server does not speak TLS")
	})
	t.Run("a server that says nothing", func(t *testing.T) {
		host := serve(t, func(c net.Conn) { io.Copy(io.Discard, c) })
		c := New(Config{Authorize: Rules{rules(t, host), true}, Timeout: 50 * time.Millisecond})
		_, err := c.Do(context.Background(), get("https://"+host), "")
		wantFailure(t, err, abi.StatusTimeout, "50ms")
	})
	t.Run("TLS 1.1", func(t *testing.T) {
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
		server.Config.ErrorLog = discardLog()
		server.StartTLS()
		defer server.Close()
		host := server.Listener.Addr().String()
		_, err := loopback(t, host).Do(context.Background(), get("https://"+host), "")
		wantFailure(t, err, abi.StatusNetwork, "the server refused the TLS handshake")
	})
}

func TestConnectionRefused(t *testing.T) {
	conn, err := net.Dial("tcp", serve(t, hold("")))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	host := conn.LocalAddr().String() // this client holds the port, so no other program gets it meanwhile
	_, err = loopback(t, host).Do(context.Background(), get("http://"+host), "")
	wantFailure(t, err, abi.StatusNetwork, host+": connection refused")
}
