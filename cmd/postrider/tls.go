package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"postrider/cmd/postrider/terminal"
)

// tlsFlags name the certificate that a listener shows. Both or none.
type tlsFlags struct {
	TLSCert string `name:"tls-cert" help:"Serve TLS with this certificate (PEM, its chain below it); read again when it changes." env:"POSTRIDER_TLS_CERT" placeholder:"FILE"`
	TLSKey  string `name:"tls-key" help:"The certificate's private key (PEM)." env:"POSTRIDER_TLS_KEY" placeholder:"FILE"`
}

// open reads both files; nil where neither is named.
func (f tlsFlags) open(log *slog.Logger) (*certificate, error) {
	switch {
	case f.TLSCert == "" && f.TLSKey == "":
		return nil, nil
	case f.TLSKey == "":
		return nil, terminal.Usagef("--tls-cert without --tls-key: name the file of the certificate's private key as well")
	case f.TLSCert == "":
		return nil, terminal.Usagef("--tls-key without --tls-cert: name the file of the certificate as well")
	}
	c := &certificate{files: f, log: log}
	if _, err := c.look(); err != nil {
		return nil, terminal.Usagef("%v", err)
	}
	return c, nil
}

// certificate is what a TLS listener shows, as its files last had it.
type certificate struct {
	files  tlsFlags
	log    *slog.Logger
	inUse  atomic.Pointer[tls.Certificate]
	cert   []byte // the files' content behind inUse
	key    []byte
	failed string // what was last logged as wrong with the files
}

// config is what the listener is given. Versions before 1.2 are withdrawn (RFC 8996).
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Named here, because net/http offers h2 by itself only where every listener of the server speaks TLS.
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.inUse.Load(), nil },
	}
}

// certificatePause is how often the files are read. Two small files cost nothing; no signal has to be sent and no time
// of a file has to be trusted, whether a renewal writes, renames or moves a symbolic link.
const certificatePause = 2 * time.Second

// watch takes renewed files into use until ctx ends.
func (c *certificate) watch(ctx context.Context) {
	tick := time.NewTicker(certificatePause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.renew()
		}
	}
}

// renew looks once. What is wrong with the files is logged once; the certificate in use stays.
func (c *certificate) renew() {
	renewed, err := c.look()
	switch {
	case err != nil && err.Error() != c.failed:
		c.failed = err.Error()
		c.log.Error("the renewed TLS certificate cannot be used; the old one stays", "error", err, "old_ends", c.ends())
	case err == nil:
		c.failed = ""
	}
	if renewed {
		c.log.Info("the TLS certificate was renewed", "ends", c.ends())
	}
}

// look takes the files into use if they hold something new that fits together.
func (c *certificate) look() (renewed bool, err error) {
	cert, err := os.ReadFile(c.files.TLSCert)
	if err != nil {
		return false, fmt.Errorf("--tls-cert: %w", err)
	}
	key, err := os.ReadFile(c.files.TLSKey)
	if err != nil {
		return false, fmt.Errorf("--tls-key: %w", err)
	}
	if bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("--tls-cert %s and --tls-key %s: %w", c.files.TLSCert, c.files.TLSKey, err)
	}
	c.cert, c.key = cert, key
	c.inUse.Store(&pair)
	return true, nil
}

// ends is when clients no longer accept the certificate in use.
func (c *certificate) ends() time.Time { return c.inUse.Load().Leaf.NotAfter }
