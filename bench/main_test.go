package bench

import (
	"context"
	"fmt"
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
	}), goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"), // ends after 10 s
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2")) // ends after 10 s
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
	case "silent": // runs until it is stopped, and is never ready
		<-ctx.Done()
	case "broken":
		return fmt.Errorf("first line\nno database here")
	case "broken serve": // of all its verbs, serve fails
		if os.Args[1] == "serve" {
			return fmt.Errorf("port trouble")
		}
	}
	return nil
}
