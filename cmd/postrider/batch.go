package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"postrider/server"
	"postrider/store"
)

type batchCmd struct {
	List batchListCmd `cmd:"" help:"List batches, the newest first."`
	Show batchShowCmd `cmd:"" help:"Show a batch, its attempts, and the deliveries that it was cut of."`
}

type batchListCmd struct {
	newestFlags
	Topic        string `help:"Of this topic." placeholder:"NAME"`
	Subscription string `help:"To this event subscription." placeholder:"NAME"`
	State        string `help:"In this state: pending, delivered, dead_lettered, dropped or canceled." enum:",pending,delivered,dead_lettered,dropped,canceled" default:"" placeholder:"STATE"`
	Hold         string `help:"Waiting for the end of this hold: paused, not_validated, probation or admission." enum:",paused,not_validated,probation,admission" default:"" placeholder:"HOLD"`
}

// Help is shown by batch list --help.
func (batchListCmd) Help() string {
	return "Examples:\n  postrider batch list --topic orders --subscription audit\n  postrider batch list --state pending -o json"
}

// Run executes batch list.
func (c *batchListCmd) Run(ctx context.Context) error {
	f := store.BatchFilter{Topic: c.Topic, Subscription: c.Subscription, State: c.State, Hold: c.Hold}
	return c.read(ctx, func(r *store.Reader) error {
		id := func(l store.BatchLine) int64 { return l.BatchID }
		list, err := newest(c.Limit, id, func(turn store.Turn[int64]) (store.Page[store.BatchLine], *int64, error) {
			page, err := r.ReadBatches(ctx, f, turn)
			return page.Page, page.LookedTo, err
		})
		if err != nil {
			return err
		}
		return c.print(describedAs(list, server.DescribeBatch), func(w io.Writer) {
			fmt.Fprintln(w, "BATCH\tTOPIC\tSUBSCRIPTION\tEVENTS\tBYTES\tSTATE\tATTEMPTS\tLAST\tNEXT\tENDED")
			for _, b := range list {
				fmt.Fprint(w, tableRow(b.BatchID, b.Topic, b.Subscription, b.Members, b.Bytes, stateCell(b.State, b.Hold), b.Attempts, answerCell(b.LastStatus, b.LastOutcome), b.NextAttemptAt, b.FinishedAt))
			}
		})
	})
}

type batchShowCmd struct {
	databaseFlags
	outputFlag
	ID int64 `arg:"" name:"id" help:"Id of the batch, as batch list tells it."`
}

// Help is shown by batch show --help.
func (batchShowCmd) Help() string {
	return "Examples:\n  postrider batch show 4711\n  postrider batch show 4711 -o json"
}

// shownBatch is what batch show prints as JSON.
type shownBatch struct {
	server.Batch
	AttemptsMade []server.DeliveryAttempt `json:"attemptsMade"`
	MembersCut   []server.BatchMember     `json:"membersCut"`
}

// maxMembers is more than a batch can have.
const maxMembers = 10_000

// Run executes batch show.
func (c *batchShowCmd) Run(ctx context.Context) error {
	return c.withReader(ctx, func(r *store.Reader) error {
		b, err := r.ReadBatch(ctx, c.ID, 0, maxMembers)
		if errors.Is(err, store.ErrNotFound) {
			return usagef("batch %d does not exist, or is not kept any more", c.ID)
		}
		if err != nil {
			return err
		}
		shown := shownBatch{server.DescribeBatch(&b.BatchLine), describedAs(b.Course, server.DescribeAttempt), describedAs(b.Listed, server.DescribeMember)}
		return c.print(shown, func(w io.Writer) { printBatch(w, &shown) })
	})
}

func printBatch(w io.Writer, b *shownBatch) {
	printNamed(w,
		"batch", b.BatchId,
		"topic", b.Topic,
		"subscription", b.Subscription,
		"state", stateCell(b.State, b.Hold),
		"events", b.Members,
		"bytes", b.Bytes,
		"attempts", b.Attempts,
		"cut", b.CreatedAt,
		"next attempt", b.NextAttemptAt,
		"hold until", b.HoldUntil,
		"finished", b.FinishedAt,
	)
	printAttempts(w, b.AttemptsMade)
	fmt.Fprintln(w, "\nPLACE\tDELIVERY\tEVENT ID\tLEFT\tWHY")
	for _, m := range b.MembersCut {
		fmt.Fprint(w, tableRow(m.Position, m.DeliveryId, m.EventId, m.LeftAt, m.LeftReason))
	}
}
