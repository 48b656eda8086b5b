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
	"sync"
	"time"

	"postrider/internal/query"
	"postrider/internal/terminal"
	"postrider/jobs"
	"postrider/server"
)

const (
	// readyAge is how long a result is reused: requests need no credential, and their rate is not limited.
	readyAge = 500 * time.Millisecond
	// silentTooLong is longer than a lease (four seconds) and a restart of PostgreSQL.
	silentTooLong = 30 * time.Second
)

// lastCheck is the latest result.
type lastCheck struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

// isReady returns why the node is not ready. The text of a server.NotReadyError may be shown to any client.
func (a *instance) isReady(ctx context.Context) error {
	if !a.ready.Load() {
		return server.NotReadyError("this node is starting or stopping")
	}
	a.checked.mu.Lock()
	defer a.checked.mu.Unlock()
	if time.Since(a.checked.at) >= readyAge {
		a.checked.err = a.check(ctx)
		a.checked.at = time.Now()
	}
	return a.checked.err
}

func (a *instance) check(ctx context.Context) error {
	if err := a.store.Reader.Ping(ctx); err != nil {
		return fmt.Errorf("%w: %w", server.NotReadyError("database unavailable"), err)
	}
	r, err := a.store.Reader.Readiness(ctx, a.keyID, a.store.Node)
	if err != nil {
		if schema := requireSchema(ctx, a.pool); schema != nil {
			return fmt.Errorf("%w: %w",
				server.NotReadyError("the database's schema is missing, or older than this program: run postrider migrate up"),
				schema)
		}
		return err
	}
	r.Failing = a.store.Commits.Failing()
	stalled := time.Duration(0)
	if a.engine != nil {
		stalled = a.engine.Stats().Stalled
	}
	return a.missing(r, stalled)
}

// missing returns why the node is not ready, or nil. A node without an engine writes no heartbeat.
func (a *instance) missing(r query.Readiness, stalled time.Duration) error {
	switch {
	case !r.KeyKnown:
		return server.NotReadyError("the database was set up with another encryption key than this node's")
	case r.ReadOnly:
		return server.NotReadyError("the database accepts no writes; run postrider doctor")
	case !r.PartitionsToday:
		return server.NotReadyError("the database has no partition for today's events; nodes create them every minute, and " +
			"the log of a node that cannot has the reason")
	case r.Failing != "":
		return server.NotReadyError(r.Failing)
	case a.engine != nil && !r.Registered:
		return server.NotReadyError("this node is not registered: it has written no heartbeat yet, or its lease has expired")
	case a.engine != nil && r.Silent > silentTooLong:
		return server.NotReadyError(fmt.Sprintf("this node wrote its last heartbeat %s ago", r.Silent.Round(time.Second)))
	case stalled >= jobs.StalledTooLong:
		return server.NotReadyError(fmt.Sprintf("deliveries are due, but this node has started no attempt for %s; restart it",
			stalled))
	}
	return nil
}

// readyCmd replaces curl, which the image does not contain.
type readyCmd struct {
	Listen  string `help:"Address that the node listens on." default:"127.0.0.1:7480" env:"POSTRIDER_LISTEN"`
	TLS     bool   `name:"tls" help:"The node serves TLS. Its certificate, which is for another name, is not verified."`
	TLSCert string `name:"tls-cert" help:"As for serve: with a certificate, the node serves TLS." env:"POSTRIDER_TLS_CERT" placeholder:"FILE"`
	Live    bool   `help:"Check only that the process responds, which it does even if the database is unavailable. Use it to restart failed nodes."`
}

const readyTimeout = 3 * time.Second

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

// checkHealth returns nil after a response 200, and else the node's reason or the error of the request.
func checkHealth(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	//nolint:gosec // the request has no secret, and the node is on this machine
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
