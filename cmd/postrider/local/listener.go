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

// ListenOrFree listens on the address, or on a free port of the same host when the port is taken, and says so.
func ListenOrFree(ctx context.Context, address string, out io.Writer) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err == nil {
		return listener, nil
	}
	host, port, splitErr := net.SplitHostPort(address)
	if splitErr != nil {
		return nil, terminal.Usagef("%q is no address such as 127.0.0.1:7480", address)
	}
	free, freeErr := config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if freeErr != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	fmt.Fprintf(out, "Port %s is taken; using %d instead.\n", port, free.Addr().(*net.TCPAddr).Port)
	return free, nil
}

// Reachable is the address to call a listener by from this machine.
func Reachable(a net.Addr) string {
	addr, ok := a.(*net.TCPAddr)
	if ok && addr.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", fmt.Sprint(addr.Port))
	}
	return a.String()
}

// ReadyInfo tells another program where everything is. Written with mode 0600: it holds secrets in dev.
type ReadyInfo struct {
	API         string `json:"api,omitempty"`
	APITLS      string `json:"apiTls,omitempty"` // beside api, in dev --tls
	CAFile      string `json:"caFile,omitempty"` // the certificate of apiTls, for clients to trust
	Health      string `json:"health,omitempty"` // instead of api, where there is nothing else
	Sink        string `json:"sink,omitempty"`
	DatabaseURL string `json:"databaseUrl,omitempty"`
	AdminToken  string `json:"adminToken,omitempty"`
	TopicKey    string `json:"topicKey,omitempty"`
}

// WriteReadyFile writes the file that a reader never sees half of. An empty path writes nothing.
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

// ReplaceFile writes a temporary file beside path and renames it: there is the whole of the old content, or of the new.
func ReplaceFile(path string, mode os.FileMode, content []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".postrider-*") // made with mode 0600
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
