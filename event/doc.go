// Package event knows envelopes: it reads a published request into events (Event Grid schema, CloudEvents 1.0, custom
// JSON with a mapping) and prints events as the body of a delivery. It decides from bytes alone: no clock, no network,
// no database, no randomness; the id and the time that a custom event may lack are handed in. It does not filter,
// route, sign or keep events, and it never changes what stands inside an event's data.
package event
