package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"postrider/server"
	"postrider/store"
)

type operationCmd struct {
	List operationListCmd `cmd:"" help:"List redeliveries, purges and erasures of many, the newest first."`
	Show operationShowCmd `cmd:"" help:"Show how far one of them has come."`
}

type operationListCmd struct {
	databaseFlags
	outputFlag
	Limit int `help:"How many to list at most: 1 to 1000." default:"50" placeholder:"N"`
}

// Help is shown by operation list --help.
func (operationListCmd) Help() string {
	return "Those that are over are kept for 30 days. deadletter cancel stops one.\n\nExample:\n  postrider operation list"
}

// Run executes operation list.
func (c *operationListCmd) Run(ctx context.Context) error {
	const most = 1000
	if c.Limit < 1 || c.Limit > most {
		return usagef("--limit %d: must be 1 to %d", c.Limit, most)
	}
	return c.withLetters(ctx, func(ctx context.Context, letters *store.DeadLetters) error {
		list, err := letters.Operations(ctx, nil, c.Limit)
		if err != nil {
			return err
		}
		return c.print(describedAs(list, server.DescribeOperation), func(w io.Writer) {
			fmt.Fprintln(w, "OPERATION\tKIND\tSTATE\tHOW FAR\tSTARTED\tBY\tENDED")
			for i := range list {
				o := &list[i]
				fmt.Fprint(w, tableRow(o.OperationID.String(), o.Kind, o.State, howFar(o), o.CreatedAt, o.StartedBy, o.FinishedAt))
			}
		})
	})
}

type operationShowCmd struct {
	databaseFlags
	outputFlag
	ID string `arg:"" name:"id" help:"Id of the operation."`
}

// Help is shown by operation show --help.
func (operationShowCmd) Help() string {
	return "Example:\n  postrider operation show 0198c5a2-11aa-7d20-8e31-0c9f6b7a5e42"
}

// Run executes operation show.
func (c *operationShowCmd) Run(ctx context.Context) error {
	id, err := readID("operation", c.ID)
	if err != nil {
		return err
	}
	return c.withLetters(ctx, func(ctx context.Context, letters *store.DeadLetters) error {
		o, err := letters.Operation(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return usagef("operation %s does not exist", id)
		}
		if err != nil {
			return err
		}
		return c.print(server.DescribeOperation(o), func(w io.Writer) {
			printNamed(w,
				"operation", o.OperationID.String(),
				"kind", o.Kind,
				"state", o.State,
				"how far", howFar(o),
				"topic", o.Topic,
				"subscription", o.Subscription,
				"started", o.CreatedAt,
				"by", o.StartedBy,
				"ended", o.FinishedAt,
				"last error", o.LastError,
			)
		})
	})
}
