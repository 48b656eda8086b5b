package pgdev_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"postrider/pgdev"

	"github.com/jackc/pgx/v5"
)

// helperVariable turns this test binary into a program that starts a server and waits to be killed.
const helperVariable = "PGDEV_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		help()
		return
	}
	pgdev.TempInMemory()
	os.Exit(pgdev.RunTests(m, migrate))
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

// migrate stands for the caller's migrations: one table that every clone must have.
func migrate(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE TABLE migrated (id int PRIMARY KEY)")
	return err
}
