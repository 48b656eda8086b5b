package local

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"postrider/cmd/postrider/terminal"
)

// ListenOrFree listens on the address. If the port is taken, it chooses a free one and prints it to out.
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
	fmt.Fprintf(out, "Port %s is taken; using %d instead.\n", port, free.Addr().(*net.TCPAddr).Port)
	return free, nil
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
	content, err := json.MarshalIndent(info, "", "  ")
	if err == nil {
		err = ReplaceFile(path, 0o600, append(content, '\n'))
	}
	if err != nil {
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
	if err == nil {
		err = temporary.Chmod(mode)
	}
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
	}
	return err
}
