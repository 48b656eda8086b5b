package main

import (
	"fmt"

	"github.com/alecthomas/kong"

	"postrider/cmd/postrider/terminal"
	"postrider/cmd/postrider/version"
)

// versionFlag is --version, which is understood without a verb.
type versionFlag bool

// BeforeReset is called by kong as soon as it has met the flag.
func (versionFlag) BeforeReset(app *kong.Kong) error { //nolint:unparam // the signature is kong's
	fmt.Fprintln(app.Stdout, version.Read())
	app.Exit(0)
	return nil
}

type versionCmd struct {
	terminal.OutputFlag
}

// Run executes version.
func (c versionCmd) Run() error {
	return c.PrintOne(version.Read(), version.Read().String())
}
