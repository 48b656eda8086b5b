//go:build !(failpoints && unix)

package main

import "postrider/store"

// withFailpoint changes nothing: only the program that the tests build for themselves can be told where to die.
func withFailpoint(o store.Options) store.Options { return o }
