// Package version is what the program knows of its own build: the released version, or the revision of its source.
package version
