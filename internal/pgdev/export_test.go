package pgdev

import (
	"context"
	"sync"
	"testing"
)

var shared = sync.OnceValues(func() (*Server, error) { return Start(context.Background(), Options{}) })

// CurrentServer is a server for several tests. A test that kills or restarts it must not be parallel.
func CurrentServer(tb testing.TB) *Server {
	tb.Helper()
	s, err := shared()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

// StopCurrent stops CurrentServer; it starts it before if no test used it.
func StopCurrent() error {
	s, err := shared()
	if err != nil {
		return err
	}
	return s.Stop(context.Background())
}
