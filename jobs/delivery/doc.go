// Package delivery has a delivery's life in SQL: Loader reads what an attempt needs, Recorder writes its result (T3),
// Releaser ends holds.
package delivery
