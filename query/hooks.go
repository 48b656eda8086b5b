package query

import "time"

// ForgetReading makes the next Read query the database. It is for tests.
func (m *Meter) ForgetReading() { m.at = time.Time{} }

// Elapse moves everything that the meter knows into the past. It is for tests.
func (m *Meter) Elapse(d time.Duration) { m.began, m.from = m.began.Add(-d), m.from.Add(-d) }

// LimitKeys bounds the counts that are kept apart. It is for tests.
func (m *Meter) LimitKeys(n int) { m.limit = n }
