//go:build !unix

package pgdev

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
)

// identity stands for the user the server runs as; there is none here, because Start refuses first.
type identity struct {
	name  string
	other bool
}

var (
	errLocked      = errors.New("locked")
	errUnsupported = errors.New("pgdev: a private PostgreSQL needs Linux or macOS, not " + runtime.GOOS +
		": give postrider the URL of a database of yours")
)

func unprivileged() (identity, error)         { return identity{}, errUnsupported }
func (identity) own(string) error             { return errUnsupported }
func (identity) mkdir(string) error           { return errUnsupported }
func (identity) letThrough(string) error      { return errUnsupported }
func (identity) closedParent(string) string   { return "" }
func (identity) tempRoots(bool) []string      { return nil }
func (identity) cacheDir() string             { return "" }
func tryLock(string) (*os.File, error)        { return nil, errUnsupported }
func environment(inherited []string) []string { return inherited }
func (identity) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, program, args...)
}

const kernelGuards = true

type guardian struct{}

func guard(int) (*guardian, error) { return nil, errUnsupported }
func (*guardian) release()         {}

func memoryRoot() string { return "" }

func runsPrograms(string) bool { return true }
