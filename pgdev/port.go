package pgdev

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

// Free ports are drawn from below the ranges from which Linux (32768 up) and macOS (49152 up) number outgoing
// connections. A port of those ranges can be lost to any outgoing connection while the server restarts.
const (
	lowestFreePort  = 20000
	highestFreePort = 32767
)

// choosePort is the wanted port, or a free one where none is wanted or Fallback allows it.
func choosePort(opts Options) (int, error) {
	if opts.Port != 0 && !taken(opts.Port) {
		return opts.Port, nil
	}
	if opts.Port != 0 && !opts.Fallback {
		return 0, fmt.Errorf("pgdev: port %d is taken: %w", opts.Port, errPortTaken)
	}
	free, err := freePort()
	if err == nil && opts.Port != 0 {
		fmt.Fprintf(opts.Log, "Port %d is taken; using %d instead.\n", opts.Port, free)
	}
	return free, err
}

// freePort draws until it finds a port that nobody listens on. 200 draws fail only where nearly all are taken.
func freePort() (int, error) {
	for range 200 {
		port := lowestFreePort + rand.IntN(highestFreePort-lowestFreePort+1)
		if !taken(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("pgdev: no free port found between %d and %d", lowestFreePort, highestFreePort)
}

// taken asks twice: binding alone succeeds on macOS beside a listener on all addresses, and would shadow it.
func taken(port int) bool {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		conn.Close()
		return true
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return true
	}
	listener.Close()
	return false
}
