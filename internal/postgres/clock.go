package postgres

import (
	"sync/atomic"
	"time"
)

// Clock is the database's time, continued by the process's monotonic clock, so that all nodes agree on expiry.
type Clock struct {
	known atomic.Pointer[moment]
}

// NewClock returns a clock that shows the process's time until Correct is called.
func NewClock() *Clock { return &Clock{} }

// Now is the database's time.
func (c *Clock) Now() time.Time {
	if known := c.known.Load(); known != nil {
		return known.at(time.Now())
	}
	return time.Now()
}

// Correct compares the clock with the database's time. A query that was sent and returned at these times has read it.
func (c *Clock) Correct(database, sent, returned time.Time) {
	c.known.Store(c.known.Load().corrected(database, sent, returned))
}

// moment is one moment on two clocks.
type moment struct{ database, process time.Time }

func (m *moment) at(process time.Time) time.Time { return m.database.Add(process.Sub(m.process)) }

// corrected is m, or a new moment if m cannot be right: the database's time was between the one that was read and that
// time plus the query's duration. So a slow query does not set the clock back.
func (m *moment) corrected(database, sent, returned time.Time) *moment {
	if m != nil {
		known := m.at(returned)
		if !known.Before(database) && !known.After(database.Add(returned.Sub(sent))) {
			return m
		}
	}
	return &moment{database: database, process: returned}
}
