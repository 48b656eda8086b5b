// Package jobs is River and the outgoing HTTP client: the worker that makes one delivery attempt per job, and the
// clockwork every node runs (promoter, lease, partitions). It calls and never listens.
// What an attempt means is decided in package policy; what is remembered of it is written by package store.
package jobs
