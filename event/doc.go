// Package event knows envelopes: it reads a published request body into events (Event Grid schema, CloudEvents 1.0)
// and prints events as the body of a delivery. It decides from bytes alone: no clock, no network, no database, no randomness.
// It does not filter, route, sign or keep events, and it never changes what stands inside an event's data.
package event
