package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/net/netutil"

	"postrider/internal/access"
	"postrider/internal/terminal"
)

// ListenOrFree listens on the address. If the port cannot be used, it chooses a free one and prints it to out.
func ListenOrFree(ctx context.Context, address string, out io.Writer) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err == nil {
		return listener, nil
	}
	host, port, splitErr := net.SplitHostPort(address)
	if splitErr != nil {
		return nil, terminal.Usagef("%q: must be an address such as 127.0.0.1:7480", address)
	}
	free, freeErr := config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if freeErr != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	why := terminal.Either(errors.Is(err, syscall.EADDRINUSE), "is taken", "cannot be used")
	fmt.Fprintf(out, "Port %s %s; using %d instead.\n", port, why, free.Addr().(*net.TCPAddr).Port)
	return free, nil
}

// LimitAddresses limits the connections of a listener. At most half of them have the same address, of IPv6 the same
// /64; it closes further ones. It does not count those of trusted proxies, which connect for many clients. While all
// are in use, further ones wait.
func LimitAddresses(listener net.Listener, most int, trusted []netip.Prefix) net.Listener {
	shared := &sharedListener{
		Listener: listener, each: max(1, most/2), trusted: trusted, open: map[netip.Prefix]int{},
	}
	return netutil.LimitListener(shared, most)
}

type sharedListener struct {
	net.Listener
	each    int
	trusted []netip.Prefix

	mu   sync.Mutex
	open map[netip.Prefix]int
}

// Accept waits for the next connection from an address that has not its share yet.
func (l *sharedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		at, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
		address := at.Addr().Unmap().WithZone("")
		if slices.ContainsFunc(l.trusted, func(p netip.Prefix) bool { return p.Contains(address) }) {
			return conn, nil
		}
		from := access.ClientNetwork(address)
		if l.enter(from) {
			return &sharedConn{Conn: conn, leave: sync.OnceFunc(func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				if l.open[from]--; l.open[from] == 0 {
					delete(l.open, from)
				}
			})}, nil
		}
		_ = conn.Close()
	}
}

func (l *sharedListener) enter(from netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from] == l.each {
		return false
	}
	l.open[from]++
	return true
}

type sharedConn struct {
	net.Conn
	leave func()
}

// Close closes the connection, which then no longer counts.
func (c *sharedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// Reachable returns the address at which this machine can call a listener.
func Reachable(a net.Addr) string {
	addr, ok := a.(*net.TCPAddr)
	if ok && addr.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", fmt.Sprint(addr.Port))
	}
	return a.String()
}

// ReadyInfo has the addresses and secrets that another program needs. The file has mode 0600.
type ReadyInfo struct {
	API         string `json:"api,omitempty"`
	APITLS      string `json:"apiTls,omitempty"` // of dev --tls
	CAFile      string `json:"caFile,omitempty"` // the certificate of apiTls
	Health      string `json:"health,omitempty"` // of a worker, instead of api
	Sink        string `json:"sink,omitempty"`
	DatabaseURL string `json:"databaseUrl,omitempty"`
	AdminToken  string `json:"adminToken,omitempty"`
	TopicKey    string `json:"topicKey,omitempty"`
}

// WriteReadyFile writes the file atomically, unless path is "".
func WriteReadyFile(path string, info ReadyInfo) error {
	if path == "" {
		return nil
	}
	content, _ := json.MarshalIndent(info, "", "  ") // texts only
	if err := ReplaceFile(path, 0o600, append(content, '\n')); err != nil {
		return fmt.Errorf("write the ready file: %w", err)
	}
	return nil
}

// RemoveReadyFile removes the file, unless path is "".
func RemoveReadyFile(path string) {
	if path != "" {
		_ = os.Remove(path)
	}
}

// ReplaceFile writes a temporary file beside path and renames it, so that readers see only complete content.
func ReplaceFile(path string, mode os.FileMode, content []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".postrider-*") // has mode 0600
	if err != nil {
		return err
	}
	_, err = temporary.Write(content)
	if err := errors.Join(err, temporary.Chmod(mode), temporary.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}
