package jobs

import "context"

// TakeOver takes jobs from the publishes of this node, as Start does.
func (e *Engine) TakeOver() { e.parts.Handoff.Open(fetchPollInterval, idlePollInterval) }

// GiveBackUnbegun does what Stop does with local jobs that were never begun.
func (e *Engine) GiveBackUnbegun(ctx context.Context) error {
	return e.giveBack(ctx, e.parts.Handoff.Close())
}
