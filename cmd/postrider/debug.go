package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof" // no listener serves http.DefaultServeMux
	"time"

	"postrider/internal/metrics"
	"postrider/internal/terminal"
	"postrider/server"
)

// debugFlags choose the listener with profiles of the process.
type debugFlags struct {
	DebugListen string `help:"Address that serves profiles (/debug/pprof/) and runtime metrics (/metrics) of the process, without authentication; :6060 is 127.0.0.1:6060. Keep it on loopback. Default: none." env:"POSTRIDER_DEBUG_LISTEN" placeholder:"ADDRESS"`
}

// listenDebug opens the debug listener, and returns nil without the flag.
func (f debugFlags) listenDebug(ctx context.Context) (net.Listener, error) {
	if f.DebugListen == "" {
		return nil, nil // no listener
	}
	host, port, err := net.SplitHostPort(f.DebugListen)
	if err != nil {
		return nil, terminal.Usagef("--debug-listen %q: must be an address such as 127.0.0.1:6060", f.DebugListen)
	}
	host = cmp.Or(host, "127.0.0.1")
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("--debug-listen: %w", err)
	}
	return listener, nil
}

// serveDebug serves profiles and runtime metrics until the returned server is closed. A profile takes as long as its
// client requests, so responses have no time limit.
func serveDebug(listener net.Listener, log *slog.Logger) *http.Server {
	paths := http.NewServeMux()
	paths.HandleFunc("GET /debug/pprof/", pprof.Index) // without cmdline: flags may have secrets
	paths.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	paths.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	paths.Handle("GET /metrics", metrics.NewRuntimeHandler())
	debug := &http.Server{
		Handler: server.Guarded(paths), ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	log.Info("serving profiles", "url", "http://"+listener.Addr().String()+"/debug/pprof/")
	if !isLoopback(listener.Addr()) {
		log.Warn("the debug listener has no authentication, and other machines can reach it",
			"address", listener.Addr().String())
	}
	go func() { _ = debug.Serve(listener) }()
	return debug
}
