// Package queue has the job rows of River, the nodes that work on them and their leases, wake-ups, the local handoff,
// the traffic of each event subscription and the memory for bodies.
package queue
