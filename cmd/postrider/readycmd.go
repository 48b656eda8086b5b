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

// readyCmd is for who has no curl: the image has nothing but this program in it.
type readyCmd struct {
	Listen  string `help:"Address that the node listens on." default:"127.0.0.1:7480" env:"POSTRIDER_LISTEN"`
	TLS     bool   `name:"tls" help:"It answers with TLS; its certificate is not looked at, because it is not for this name."`
	TLSCert string `name:"tls-cert" help:"As serve is told: where there is one, it answers with TLS." env:"POSTRIDER_TLS_CERT" placeholder:"FILE"`
	Live    bool   `help:"Ask only whether its process answers, which it does while the database is away. For those who restart what fails."`
}

const readyPatience = 3 * time.Second

// Run executes ready.
func (c *readyCmd) Run(ctx context.Context) error {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return terminal.Usagef("--listen %q: not an address such as 127.0.0.1:7480", c.Listen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // it listens on all addresses
	}
	scheme, path, lack := "http", "/readyz", "not ready"
	if c.TLS || c.TLSCert != "" {
		scheme = "https"
	}
	if c.Live {
		path, lack = "/healthz", "not alive"
	}
	if err := askHealth(ctx, scheme+"://"+net.JoinHostPort(host, port)+path); err != nil {
		return fmt.Errorf("%s: %w", lack, err)
	}
	return nil
}

// askHealth fails with what the node says of itself, or with why it says nothing.
func askHealth(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	//nolint:gosec // nothing is sent, and this machine is asked
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if answer.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}
