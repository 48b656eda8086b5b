// Package bench is the other two ends of postrider: publishers that note what was acknowledged, sinks that note what
// arrived, the ledgers that tell what was lost between them, and the scenarios that measure the binary with them. It
// decides nothing about deliveries and serves nothing in production: the bench verb, the sink verb, dev and fault tests
// use it.
package bench
