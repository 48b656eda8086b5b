package display

import (
	"time"

	"postrider/policy"
)

// StatusAction is the action of a policy for a condition, or its action for "other".
func StatusAction(p *policy.Policy, kind policy.EndpointKind, condition string) string {
	var found *policy.Cell
	for i, cell := range p.Cells {
		if cell.EndpointKind == kind && (cell.Condition == condition || cell.Condition == "other" && found == nil) {
			found = &p.Cells[i]
		}
	}
	if found == nil {
		return "retry"
	}
	text := map[policy.Action]string{
		policy.ActionSuccess: "success", policy.ActionRetry: "retry", policy.ActionNever: "never retried",
		policy.ActionNeverIfDeadLetter: "never retried with dead-lettering",
	}[found.Action]
	if found.MinDelay > 0 && found.Action != policy.ActionNever {
		text += " after at least " + Span(time.Duration(found.MinDelay))
	}
	return text
}
