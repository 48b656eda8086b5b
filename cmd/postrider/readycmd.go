package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"postrider/cmd/postrider/terminal"
)

// readyCmd replaces curl in the image, which contains only this program.
type readyCmd struct {
	Listen  string `help:"Address that the node listens on." default:"127.0.0.1:7480" env:"POSTRIDER_LISTEN"`
	TLS     bool   `name:"tls" help:"The node serves TLS. Its certificate is not checked, because it is not for this name."`
	TLSCert string `name:"tls-cert" help:"As for serve: with a certificate, the node serves TLS." env:"POSTRIDER_TLS_CERT" placeholder:"FILE"`
	Live    bool   `help:"Check only that its process responds, which it does while the database is unavailable: for restarts of nodes that fail."`
}

const readyPatience = 3 * time.Second

// Run executes ready.
func (c *readyCmd) Run(ctx context.Context) error {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return terminal.Usagef("--listen %q: not an address such as 127.0.0.1:7480", c.Listen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // the node listens on all addresses
	}
	scheme, path, lack := "http", "/readyz", "not ready"
	if c.TLS || c.TLSCert != "" {
		scheme = "https"
	}
	if c.Live {
		path, lack = "/healthz", "not alive"
	}
	if err := checkHealth(ctx, scheme+"://"+net.JoinHostPort(host, port)+path); err != nil {
		return fmt.Errorf("%s: %w", lack, err)
	}
	return nil
}

// checkHealth returns the node's reason, or why there is no response.
func checkHealth(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	//nolint:gosec // nothing is sent, and it is this machine
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
	if response.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}
