package pgdev_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"postrider/internal/pgdev"
)

// helperVariable turns this test binary into a program that starts a server and waits to be killed.
const helperVariable = "PGDEV_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		help()
		return
	}
	pgdev.TempInMemory()
	code := m.Run()
	if err := pgdev.StopCurrent(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func help() {
	s, err := pgdev.Start(context.Background(), pgdev.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.Dir(), s.URL("postgres"))
	select {}
}
