// Package jobs is River and the outgoing HTTP client: workers that make one delivery attempt per job, and one step,
// request or try per job of what else has to go out, and the clockwork that every node runs and that trusts no leader.
// It calls and never listens. What an attempt means is decided in package policy; the database side is in the packages
// below: queue, publish, delivery.
package jobs
