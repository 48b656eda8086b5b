// Package benchmark is the verbs of bench: each runs a measurement of package bench and prints its report.
package benchmark
