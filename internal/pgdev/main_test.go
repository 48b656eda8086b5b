package pgdev

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// helperVariable turns this test binary into a program that starts a server and waits to be killed.
const helperVariable = "PGDEV_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		help()
		return
	}
	TempInMemory()
	code := m.Run()
	s, err := shared()
	if err == nil {
		err = s.Stop(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func help() {
	s, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.Dir(), s.URL("postgres"), s.guardian.cmd.Process.Pid)
	select {}
}

var shared = sync.OnceValues(func() (*Server, error) { return Start(context.Background(), Options{}) })

// currentServer is a server for several tests. A test that kills or restarts it must not be parallel.
func currentServer(tb testing.TB) *Server {
	tb.Helper()
	s, err := shared()
	require.NoError(tb, err)
	return s
}
