package operator

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"postrider/postgres"
)

const (
	// previewTime is how long a dry run checks. Its caller waits for it.
	previewTime = 5 * time.Second
	// previewDiffs and previewSamples are how many examples a dry run has, of changed events and of each cause.
	previewDiffs, previewSamples = 3, 3
	previewStep                  = 200
)

// RepairPreview is the result of a dry run of a repair.
type RepairPreview struct {
	// Matched is the number of dead letters in the selection, Checked how many of them the counts are about.
	Matched int `json:"matched"`
	Checked int `json:"checked"`
	// AtLeast: checking stopped early, and the counts are minimums.
	AtLeast bool `json:"atLeast"`
	// Changed events would be redelivered as edited. Unchanged ones are skipped unless includeUnchanged.
	Changed   int `json:"changed"`
	Unchanged int `json:"unchanged"`
	// Skipped and Failed are by cause.
	Skipped []RepairCause `json:"skipped"`
	Failed  []RepairCause `json:"failed"`
	// Diffs are of the first three changed events.
	Diffs []RepairDiff `json:"diffs"`
}

// RepairCause counts dead letters that a repair would not redeliver.
type RepairCause struct {
	Cause   string         `json:"cause"`
	Count   int            `json:"count"`
	Samples []RepairSample `json:"samples"`
}

// RepairSample is a dead letter that a repair would not redeliver, and why.
type RepairSample struct {
	DeadLetterID uuid.UUID `json:"deadLetterId"`
	Message      string    `json:"message"`
}

// RepairDiff is what a repair would change of one event.
type RepairDiff struct {
	DeadLetterID uuid.UUID  `json:"deadLetterId"`
	Diff         string     `json:"diff"`
	Lines        []DiffLine `json:"-"`
}

// PreviewRepair returns what a repair of a selection would do now, for a little more than 5 s. *FunctionError.
func (o *Operator) PreviewRepair(ctx context.Context, id uuid.UUID, do *Action) (*RepairPreview, error) {
	patch, err := ParsePatch(do.Patch)
	if err != nil {
		return nil, err
	}
	selected, err := o.Selection(ctx, id)
	if err != nil {
		return nil, err
	}
	if selected.Kind != SelectedDeadLetters {
		return nil, postgres.Invalid("selection", "selection %s has deliveries: they cannot be repaired", id)
	}
	target, again, err := o.previewTarget(ctx, do)
	if err != nil {
		return nil, err
	}
	found := &RepairPreview{
		Matched: selected.Count, Skipped: []RepairCause{}, Failed: []RepairCause{}, Diffs: []RepairDiff{},
	}
	began, after := time.Now(), 0
	for found.Checked < found.Matched {
		if found.AtLeast = time.Since(began) > previewTime; found.AtLeast {
			break
		}
		items, err := readRepairs(ctx, o.db, id, after, previewStep, target, again)
		if err != nil {
			return nil, postgres.CallError("preview a repair", err)
		}
		if len(items) == 0 {
			break // the selection has expired
		}
		for i := range items {
			found.add(&items[i], items[i].edit(patch, o.clock.Now(), false))
			after = items[i].Position
		}
	}
	return found, nil
}

// previewTarget is the target of a repair, and the time before which a redelivery counts.
func (o *Operator) previewTarget(ctx context.Context, do *Action) (target *int64, again *time.Time, err error) {
	if do.Again {
		again = new(o.clock.Now().Add(time.Hour))
	}
	if do.To.Subscription != "" {
		const find = "SELECT postrider_internal.redelivery_target($1, $2)"
		if err = o.db.QueryRow(ctx, find, do.To.Topic, do.To.Subscription).Scan(&target); err != nil {
			err = postgres.CallError("find the event subscription", err)
		}
	}
	return target, again, err
}

// add counts an item.
func (p *RepairPreview) add(i *repairItem, result string) {
	p.Checked++
	switch result {
	case "":
		p.Changed++
		if len(p.Diffs) < previewDiffs {
			lines := DiffJSON(i.Body, i.edited.Body)
			p.Diffs = append(p.Diffs, RepairDiff{DeadLetterID: i.DeadLetterID, Diff: DiffText(lines), Lines: lines})
		}
		return
	case resultUnchanged:
		p.Unchanged++
		return
	}
	list := &p.Failed
	if i.Skipped {
		list = &p.Skipped
	}
	cause, message, _ := strings.Cut(result, ": ")
	if i.Message != nil {
		message = *i.Message
	}
	for at := range *list {
		if c := &(*list)[at]; c.Cause == cause {
			c.Count++
			if len(c.Samples) < previewSamples {
				c.Samples = append(c.Samples, RepairSample{i.DeadLetterID, message})
			}
			return
		}
	}
	*list = append(*list, RepairCause{Cause: cause, Count: 1, Samples: []RepairSample{{i.DeadLetterID, message}}})
}
