package bench

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"postrider/pgdev"
)

// roleVariable turns this test binary into one of the programs that tests start as children.
const roleVariable = "BENCH_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	disk = os.TempDir()
	pgdev.TempInMemory()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if builtIn != "" {
			_ = os.RemoveAll(builtIn)
		}
		os.Exit(code)
	}))
}

// builtIn is the folder of the program that build made for the tests of this process, below disk: a run that is killed
// leaves 50 MB behind.
var disk, builtIn string

// build makes the real binary, once, without what debuggers read.
var build = sync.OnceValues(func() (binary string, err error) {
	if builtIn, err = os.MkdirTemp(disk, "postrider-binary-"); err != nil {
		return "", err
	}
	binary = filepath.Join(builtIn, "postrider")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary, "postrider/cmd/postrider").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return binary, nil
})

func play(role string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch role {
	case "silent": // runs until it is asked to end, and is never ready
		<-ctx.Done()
	case "broken":
		return fmt.Errorf("first line\nno database here")
	case "broken serve": // of all its verbs, serve fails
		if os.Args[1] == "serve" {
			return fmt.Errorf("port trouble")
		}
	case "sink":
		return RunSink(ctx, SinkOptions{Listen: "127.0.0.1:0", ReadyFile: os.Args[1]})
	case "net/http sink":
		return runStandardSink(ctx, os.Args[1])
	}
	return nil
}

// runStandardSink is RunSink by the standard library's server: the yardstick for ours.
func runStandardSink(ctx context.Context, ready string) error {
	sink, err := NewCountingSink("")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := http.Server{Handler: sink}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := writeReady(ready, map[string]string{"sink": "http://" + listener.Addr().String()}); err != nil {
		return err
	}
	_ = server.Serve(listener)
	return nil
}
