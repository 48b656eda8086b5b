// Package benchmark is the verbs of bench: each runs a scenario of package bench and prints its report.
package benchmark
