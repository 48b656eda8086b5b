package management

import (
	"context"
	"encoding/json"

	"postrider/operator"
	"postrider/query"
	"postrider/server/api"
)

type repairSelectionRequest struct {
	SelectionPath
	Body RepairSelectionSpec
}

// RepairSelectionSpec is the patch of a repair, in one of its two forms, and its options.
type RepairSelectionSpec struct {
	RedeliverSelectionSpec
	Patch            json.RawMessage `json:"patch,omitempty" type:"array"`
	MergePatch       json.RawMessage `json:"mergePatch,omitempty" type:"object"`
	IncludeUnchanged bool            `json:"includeUnchanged,omitempty" default:"false"`
	DryRun           bool            `json:"dryRun,omitempty" default:"false"`
}

// StartedRepair is the response to a repair of a selection: the operation, or the result of a dry run.
type StartedRepair = api.Started[operator.RepairPreview, query.Operation]

// RepairSelection responds to POST /v1/selections/{selectionId}/repair.
func (m *Handlers) RepairSelection(ctx context.Context, r *repairSelectionRequest) (*StartedRepair, error) {
	var found problems
	do := operator.Action{
		Kind: operator.Repair, To: found.target(r.Body.RedeliverTarget), Again: r.Body.Again,
		Rate: found.rate(r.Body.RatePerSecond), Patch: found.patch(&r.Body), IncludeUnchanged: r.Body.IncludeUnchanged,
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	if r.Body.DryRun {
		preview, err := m.Parts.Operator.PreviewRepair(ctx, r.ID, &do)
		return &StartedRepair{Done: preview}, err
	}
	started, err := m.actOnSelection(ctx, r.ID, &do)
	if err != nil {
		return nil, err
	}
	return &StartedRepair{Operation: started.Body}, nil
}

// patch returns the patch of a repair in the form that was given.
func (p *problems) patch(spec *RepairSelectionSpec) []byte {
	switch {
	case (spec.Patch == nil) == (spec.MergePatch == nil):
		p.Value("patch", "or mergePatch is required, and not both")
	case spec.Patch != nil && spec.Patch[0] != '[':
		p.Value("patch", "must be an array of operations (RFC 6902)")
	case spec.MergePatch != nil && spec.MergePatch[0] != '{':
		p.Value("mergePatch", "must be an object (RFC 7396)")
	case spec.Patch != nil:
		return spec.Patch
	}
	return spec.MergePatch
}
