package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"postrider/internal/cli/rest"
	"postrider/internal/query"
	"postrider/internal/terminal"
)

// deliveryActCmd acts on one delivery, or many as an operation. Its tag done is that of rest.ActVerb.
type deliveryActCmd struct {
	manyFlags
	query.DeliveryFilter
	ID rowID[query.DeliveryLine] `arg:"" optional:"" name:"id" help:"Id of the delivery, as delivery list shows it, instead of a filter."`
}

func (c *deliveryActCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client, k *kong.Context) error {
	filter, err := c.filter(std.In)
	if err != nil {
		return err
	}
	return c.act(ctx, std, client, k, filter)
}

// filter validates the flags and returns the filter of a request; nil for one delivery.
func (c *deliveryActCmd) filter(stdin io.Reader) (rest.Object, error) {
	filter, err := rest.Filter(&c.DeliveryFilter)
	if err != nil {
		return nil, err
	}
	chosen := 0
	for _, given := range []bool{c.ID != "", len(filter) > 0, c.IDsFrom != ""} {
		if given {
			chosen++
		}
	}
	switch {
	case chosen != 1:
		return nil, terminal.Usagef("choose deliveries with one of an id, filters such as --topic, and --ids-from")
	case c.ID != "" && (c.DryRun || c.Rate != 0 || c.NoWait || c.ExpectedCount != nil):
		return nil, terminal.Usagef("--dry-run, --rate, --no-wait and --expected-count are for many deliveries")
	case c.ID != "":
		return nil, nil
	}
	if err := c.checkRate(); err != nil || c.IDsFrom == "" {
		return filter, err
	}
	filter["deliveryIds"], err = readIDs(stdin, c.IDsFrom, func(text string) (int64, error) {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			err = terminal.Usagef("%q: not the id of a delivery, which is a number", text)
		}
		return id, err
	})
	return filter, err
}

// act acts on what a filter matches; without one on the delivery of the argument.
func (c *deliveryActCmd) act(
	ctx context.Context, std terminal.Streams, client *rest.Client, k *kong.Context, filter rest.Object,
) error {
	if filter == nil {
		return c.Act(ctx, std, client, k, rowArg[query.DeliveryLine]{c.ID}.Path(), nil)
	}
	return c.inBulk(ctx, std, client, manyDeliveries(k), filter, rest.Object{}, "pending delivery")
}

// manyDeliveries is the path of the verb's operation on many deliveries.
func manyDeliveries(k *kong.Context) string {
	return rest.ActionURL(rest.ListURL[query.DeliveryLine](), k)
}

// deliveryCancelCmd is a deliveryActCmd that requires a confirmation.
type deliveryCancelCmd struct {
	deliveryActCmd
	terminal.ConfirmFlag
}

func (c *deliveryCancelCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client, k *kong.Context) error {
	filter, err := c.filter(std.In)
	if err == nil && !c.DryRun {
		err = c.Confirm(std, func() (string, error) {
			what := fmt.Sprintf("delivery %s", c.ID)
			if filter != nil {
				// No count is expected, as for dead letters: pending deliveries end until the user replies.
				filter["createdUntil"] = time.Now().UTC()
				n, atLeast, err := count(ctx, client, manyDeliveries(k), filter)
				if err != nil {
					return "", err
				}
				what = terminal.Either(atLeast, "at least ", "") + terminal.Plural(n, "pending delivery")
			}
			return fmt.Sprintf("Cancel %s? You cannot undo it. An attempt in progress may still reach the endpoint.", what), nil
		})
	}
	if err != nil {
		return err
	}
	return c.act(ctx, std, client, k, filter)
}
