package local

import (
	"context"
	"fmt"
	"io"
	"net"

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
