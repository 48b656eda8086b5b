//go:build !(failpoints && unix)

package main

import (
	"postrider/cmd/postrider/app"
)

// withFailpoint changes nothing: only the program that the tests build has failpoints.
func withFailpoint(o app.Options) app.Options { return o }
