//go:build !(failpoints && unix)

package main

import (
	"postrider/internal/node"
)

// withFailpoint changes nothing: only the program that the tests build has failpoints.
func withFailpoint(o node.Options) node.Options { return o }
