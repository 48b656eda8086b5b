package v1

import (
	"context"
	"encoding/json"

	"postrider/internal/operator"
	"postrider/internal/query"
	"postrider/server/api"
)

// RepairSpec is the patch of a repair, the dead letters whose events it changes, and its options.
type RepairSpec struct {
	RedeliverAllSpec
	MergePatch       json.RawMessage `json:"mergePatch" type:"object"`
	IncludeUnchanged bool            `json:"includeUnchanged,omitempty" default:"false"`
}

type repairRequest struct {
	Body RepairSpec `extraBytes:"524288"`
}

// StartedRepair is the response to a repair: the operation, or the result of a dry run.
type StartedRepair = api.Started[operator.RepairPreview, query.Operation]

// RepairDeadLetters responds to POST /v1/deadLetters/repair.
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
