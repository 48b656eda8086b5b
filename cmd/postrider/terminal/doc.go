// Package terminal reads and prints what verbs show to people: output formats, values in one line, times, progress and
// confirmations. Its errors of wrong usage give exit code 2.
package terminal
