// Package local is for programs that listen on this machine: a free port, the file with their address, and the demo
// endpoint of `postrider sink` and `postrider dev`.
package local
