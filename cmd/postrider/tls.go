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

	"postrider/internal/terminal"
)

// tlsFlags name the certificate of a listener: both or none.
type tlsFlags struct {
	TLSCert string `name:"tls-cert" help:"Serve TLS with this certificate (PEM, followed by its chain). Changes of the file take effect within seconds." env:"POSTRIDER_TLS_CERT" placeholder:"FILE"`
	TLSKey  string `name:"tls-key" help:"The certificate's private key (PEM)." env:"POSTRIDER_TLS_KEY" placeholder:"FILE"`
}

// open reads both files. It returns nil without the flags.
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
	if _, err := c.load(); err != nil {
		return nil, terminal.Usagef("%v", err)
	}
	return c, nil
}

// certificate is the certificate of a TLS listener, reloaded when its files change.
type certificate struct {
	files     tlsFlags
	log       *slog.Logger
	inUse     atomic.Pointer[tls.Certificate]
	cert, key []byte // content of the files of inUse
	failed    string // the last logged error of the files
}

// certificatePause is between two reads of the files. Reading works however a renewal replaces them: by writing,
// renaming or moving a symbolic link.
const certificatePause = 2 * time.Second

// watch reloads the files until ctx ends.
func (c *certificate) watch(ctx context.Context) {
	tick := time.NewTicker(certificatePause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// An error of the files is logged once. The certificate in use stays.
			renewed, err := c.load()
			switch {
			case err != nil && err.Error() != c.failed:
				c.failed = err.Error()
				c.log.Error("renewed TLS certificate is invalid; the current one stays in use", "error", err, "ends", c.ends())
			case err == nil:
				c.failed = ""
			}
			if renewed {
				c.log.Info("TLS certificate renewed", "ends", c.ends())
			}
		}
	}
}

// load reads the files, and uses them if they have changed and match.
func (c *certificate) load() (renewed bool, err error) {
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

// ends is when the certificate in use expires.
func (c *certificate) ends() time.Time { return c.inUse.Load().Leaf.NotAfter }
