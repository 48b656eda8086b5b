package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/internal/postgres"
	"postrider/internal/query"
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
	// Number of dead letters that were found and checked.
	Matched int `json:"matched"`
	// true if checking stopped early. The counts are minimums.
	AtLeast bool `json:"atLeast"`
	// Number of events that would be changed and redelivered.
	Changed int `json:"changed"`
	// Number of events that the patch does not change. They are skipped by default.
	Unchanged int `json:"unchanged"`
	// Dead letters that would be skipped, by cause.
	Skipped []RepairCause `json:"skipped"`
	// Dead letters that would fail, by cause.
	Failed []RepairCause `json:"failed"`
	// What would change in the first three changed events.
	Diffs []RepairDiff `json:"diffs"`
}

// RepairCause are dead letters that a repair would not redeliver, for one cause.
type RepairCause struct {
	// Cause in one word, such as invalid or schema.
	Cause string `json:"cause"`
	// Number of dead letters.
	Count int `json:"count"`
	// Up to three of them.
	Samples []RepairSample `json:"samples"`
}

// RepairSample is a dead letter that a repair would not redeliver.
type RepairSample struct {
	DeadLetterID uuid.UUID `json:"deadLetterId"`
	// Why not.
	Message string `json:"message"`
}

// RepairDiff is what a repair would change in one event.
type RepairDiff struct {
	DeadLetterID uuid.UUID `json:"deadLetterId"`
	// The changed members, up to 100.
	Changes []Change `json:"changes"`
}

// PreviewRepair returns what a repair would do now, for a little more than 5 s. *FunctionError; the errors of
// query.Reader.Search.
func (o *Operator) PreviewRepair(
	ctx context.Context, filter *query.DeadLetterFilter, do *Action,
) (preview *RepairPreview, err error) {
	patch, err := parsePatch(do.Patch)
	if err != nil {
		return nil, err
	}
	matching := *filter
	if matching.State == nil && !do.Again {
		matching.State = new("open")
	}
	text, err := matching.Text()
	if err != nil {
		return nil, err
	}
	err = o.reader.Search(ctx, 2*previewTime, "dead letters", func(ctx context.Context, tx pgx.Tx) error {
		target, again, err := o.previewTarget(ctx, tx, filter, do)
		if err != nil {
			return err
		}
		preview, err = o.previewRepair(ctx, tx, text, patch, target, again)
		return err
	})
	if err != nil {
		return nil, postgres.AsFunctionError(err)
	}
	return preview, nil
}

func (o *Operator) previewRepair(
	ctx context.Context, tx pgx.Tx, filter string, patch *Patch, target *int64, again *time.Time,
) (*RepairPreview, error) {
	preview := &RepairPreview{Skipped: []RepairCause{}, Failed: []RepairCause{}, Diffs: []RepairDiff{}}
	began, reached := time.Now(), &foundDeadLetters{ReachedID: new(uuid.UUID)}
	reached.ReachedAt = pgtype.Timestamptz{Valid: true, InfinityModifier: pgtype.NegativeInfinity}
	for until := o.clock.Now().Add(time.Hour); !reached.Last && !preview.AtLeast; {
		var items []repairItem
		var err error
		reached, items, err = nextRepairs(ctx, tx, filter, until, reached.ReachedAt, *reached.ReachedID, previewStep,
			target, again)
		if err != nil {
			return nil, err
		}
		for i := range items {
			preview.add(&items[i], patch, o.clock.Now())
		}
		preview.AtLeast = !reached.Last && time.Since(began) > previewTime
	}
	return preview, nil
}

// previewTarget is the target of a repair, and the time before which a redelivery counts.
func (o *Operator) previewTarget(
	ctx context.Context, tx pgx.Tx, filter *query.DeadLetterFilter, do *Action,
) (target *int64, again *time.Time, err error) {
	if do.Again || filter.State != nil && *filter.State != "open" {
		again = new(o.clock.Now().Add(time.Hour))
	}
	if do.To.Subscription != "" {
		topic := do.To.Topic
		if topic == "" && filter.Topic != nil {
			topic = *filter.Topic
		}
		const find = "SELECT postrider_internal.redelivery_target($1, $2)"
		if err = tx.QueryRow(ctx, find, topic, do.To.Subscription).Scan(&target); err != nil {
			err = fmt.Errorf("find the event subscription: %w", err)
		}
	}
	return target, again, err
}

// add counts a dead letter.
func (p *RepairPreview) add(i *repairItem, patch *Patch, now time.Time) {
	p.Matched++
	cause, message := i.edit(patch, now, false)
	switch cause {
	case "":
		p.Changed++
		if len(p.Diffs) < previewDiffs {
			p.Diffs = append(p.Diffs, RepairDiff{i.DeadLetterID, Diff(i.Body, i.edited.Body)})
		}
		return
	case resultUnchanged:
		p.Unchanged++
		return
	}
	list := &p.Failed
	if isSkipped(cause) {
		list = &p.Skipped
	}
	at := slices.IndexFunc(*list, func(c RepairCause) bool { return c.Cause == cause })
	if at < 0 {
		at, *list = len(*list), append(*list, RepairCause{Cause: cause})
	}
	c := &(*list)[at]
	if c.Count++; len(c.Samples) < previewSamples {
		c.Samples = append(c.Samples, RepairSample{i.DeadLetterID, message})
	}
}
