package queue

import "slices"

// Waiting returns the jobs that publishes gave to free workers, and the number of workers reserved. It is for tests.
func (h *Handoff) Waiting() (jobs []*Work, reserved int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.waiting), h.reserved
}

// IgnoreResponses makes responses close no endpoint. It is for tests of retry schedules, before a start.
func (c *ClosedEndpoints) IgnoreResponses() { c.ignores = true }
