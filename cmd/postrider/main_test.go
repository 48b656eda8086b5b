package main

import (
	"os"
	"testing"

	"postrider/internal/testdb"
	"postrider/internal/testnode"
)

// Tests that start the program are in e2e.
func TestMain(m *testing.M) { os.Exit(testdb.Run(m, testnode.Migrate)) }
