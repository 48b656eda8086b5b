package query

import "time"

// ForgetReading makes the next Read query the database.
func (m *Meter) ForgetReading() { m.at = time.Time{} }

// Elapse moves everything that the meter knows into the past.
func (m *Meter) Elapse(d time.Duration) { m.began, m.from = m.began.Add(-d), m.from.Add(-d) }

// LimitKeys sets the number of separate counts.
func (m *Meter) LimitKeys(n int) { m.limit = n }
