// Package store is every line of SQL of the product: the catalogue with its cache, publishing (T1), loading what is due,
// recording what attempts came to (T3), and the clockwork's statements.
// It decides nothing about events: filters and verdicts come from package policy, envelopes from package event.
// It never listens and never calls out; PostgreSQL is the only thing it talks to.
package store
