// Package bench measures postrider. It starts the program as its users do, publishes events to it, receives them in
// another process, and reports throughput, latency, cost and losses. Tests use its ledgers to find lost events.
package bench
