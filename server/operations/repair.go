package operations

import (
	"context"
	"encoding/json"

	"postrider/internal/operator"
	"postrider/internal/query"
	"postrider/server/api"
)

// RepairSpec is the merge patch of a repair, the dead letters whose events it changes, and its options.
type RepairSpec struct {
	RedeliverAllSpec
	// JSON merge patch (RFC 7396), nested up to 256 levels.
	MergePatch json.RawMessage `json:"mergePatch" type:"object"`
	// true also redelivers events that the patch does not change.
	IncludeUnchanged bool `json:"includeUnchanged,omitempty" default:"false"`
}

type repairRequest struct {
	Body RepairSpec `extraBytes:"524288"`
}

// StartedRepair is the response to a repair: the operation, or the result of a dry run.
type StartedRepair = api.Started[operator.RepairPreview, query.Operation]

// RepairDeadLetters repairs matching dead letters.
//
// Starts an operation that counts the existing dead letters that match the filter. It then changes the event of each by
// a JSON merge patch (RFC 7396) and redelivers the edited event, as `redeliverDeadLetter` does with `event`. What the
// patch does not name keeps its bytes. Only open dead letters match, unless the filter has `state` or `again` is
// true.
//
// A dead letter fails if the edited event is invalid or too large. With `dryRun`, nothing changes: the response is 200
// with counts, examples and the changes of three events. A dry run takes about five seconds at most.
func (m *Handlers) RepairDeadLetters(ctx context.Context, r *repairRequest) (*StartedRepair, error) {
	var found problems
	do := found.action(operator.Repair, &r.Body.RedeliverAllSpec)
	do.Patch, do.IncludeUnchanged = r.Body.MergePatch, r.Body.IncludeUnchanged
	if len(do.Patch) == 0 || do.Patch[0] != '{' {
		found.Value("mergePatch", "must be an object (RFC 7396)")
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	if err := m.checkNames(ctx, r.Body.Filter); err != nil {
		return nil, err
	}
	if r.Body.DryRun {
		preview, err := m.Parts.Operator.PreviewRepair(ctx, r.Body.Filter, do)
		return &StartedRepair{Done: preview}, err
	}
	id, err := m.Parts.Operator.OnDeadLetters(ctx, r.Body.Filter, do)
	started, err := m.started(ctx, id, err)
	if err != nil {
		return nil, err
	}
	return &StartedRepair{Operation: started.Operation}, nil
}
