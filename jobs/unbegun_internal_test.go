package jobs

import "context"

// GiveBackUnbegun does what Stop does with jobs that were handed over and never begun.
func (e *Engine) GiveBackUnbegun(ctx context.Context) error { return e.giveBack(ctx, e.hands.close()) }
