package main

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/host/hostfile"
)

// serverCertificate is what a host shows to its clients. It is read again on SIGHUP, since
// certificates are renewed more often than hosts are started.
type serverCertificate struct {
	files   hostfile.TLS
	current atomic.Pointer[tls.Certificate]
}

// load reads the files. If they are wrong, what was read before stays.
func (c *serverCertificate) load() error {
	pair, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
	if err != nil {
		return fmt.Errorf("cert %s, key %s: %s", c.files.Cert, c.files.Key, plainError(err))
	}
	c.current.Store(&pair)
	return nil
}

// expires returns until when clients accept it.
func (c *serverCertificate) expires() time.Time { return c.current.Load().Leaf.NotAfter }

// config is that of a server which shows it, or nil without one.
func (c *serverCertificate) config() *tls.Config {
	if c == nil {
		return nil
	}
	show := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil }
	return &tls.Config{GetCertificate: show, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}
