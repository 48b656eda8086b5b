package jobs

import "time"

// Stats is what this node's engine has in its hands.
type Stats struct {
	// InFlight counts the jobs that are being worked on; MaxWorkers is how many there may be.
	InFlight, MaxWorkers int
	// OpenCalls counts the requests whose ack timeout is over and whose answer is still waited for.
	OpenCalls int
	// Stalled is for how long deliveries have been due and no attempt was begun.
	Stalled time.Duration
}

// Stats reads the counts.
func (e *Engine) Stats() Stats {
	return Stats{
		InFlight: e.parts.Active.Len(), MaxWorkers: e.parts.Handoff.Workers(), OpenCalls: e.endpoint.OpenCalls(), Stalled: e.Stalled(),
	}
}
