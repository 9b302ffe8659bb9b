package serve

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// readyTime bounds the wait of [File.Ready]. A host answers within five seconds.
const readyTime = 8 * time.Second

// Ready asks the host that serves this file, on this machine, whether it accepts runs. The
// error names the failed checks.
func (f *File) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	scheme := "http"
	if f.TLS != (FileTLS{}) {
		scheme = "https"
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, f.Listen.Network, f.Listen.Address)
		},
		// The certificate is for the host's public names. The request contains no secrets.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://localhost/api/v1/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if failure, ok := errors.AsType[*url.Error](err); ok { // without the made-up URL
		err = failure.Err
	}
	if err != nil {
		return fmt.Errorf("no host answers at %s: %w", f.Listen, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	var doc struct{ Checks map[string]string }
	_ = json.NewDecoder(io.LimitReader(response.Body, 1<<16)).Decode(&doc) // without them, the status must do
	var failed []string
	for check, state := range doc.Checks {
		switch state {
		case "ok", "low":
		case "draining":
			failed = append(failed, "it drains, as an operator wishes")
		default:
			failed = append(failed, check+" "+state)
		}
	}
	slices.Sort(failed)
	return fmt.Errorf("the host at %s is not ready: %s: %s", f.Listen, response.Status, strings.Join(failed, ", "))
}
