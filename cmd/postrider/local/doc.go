// Package local is for programs that listen on this machine: a free port, and the file that says where they answer.
package local
