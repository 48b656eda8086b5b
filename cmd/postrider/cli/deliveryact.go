package cli

import (
	"context"
	"path"
	"strconv"

	"github.com/alecthomas/kong"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// deliveryActCmd retries or cancels one delivery, or many as an operation. The tags of the verb are those of
// rest.ActVerb; path is for one.
type deliveryActCmd struct {
	manyFlags
	deliveryFilter
	ID int64 `arg:"" optional:"" name:"id" help:"Id of the delivery, as delivery list shows it, instead of a filter."`
}

func (c *deliveryActCmd) Run(ctx context.Context, k *kong.Context) error {
	chosen := 0
	for _, given := range []bool{c.ID != 0, c.deliveryFilter != deliveryFilter{}, c.IDsFrom != ""} {
		if given {
			chosen++
		}
	}
	switch {
	case chosen != 1:
		return terminal.Usagef("choose deliveries with one of an id, filters such as --topic, and --ids-from")
	case c.ID != 0 && (c.DryRun || c.Rate != 0 || c.NoWait || c.ExpectedCount != nil):
		return terminal.Usagef("--dry-run, --rate, --no-wait and --expected-count are for many deliveries")
	case c.ID != 0:
		return rest.Act(ctx, c.Flags, k, nil)
	}
	filter, err := rest.Filter(&c.deliveryFilter)
	if err == nil {
		err = c.checkRate()
	}
	if err == nil && c.IDsFrom != "" {
		filter["deliveryIds"], err = readIDs(&c.manyFlags, func(text string) (int64, error) {
			id, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				err = terminal.Usagef("%q: not the id of a delivery, which is a number", text)
			}
			return id, err
		})
	}
	if err != nil {
		return err
	}
	at := "/v1/deliveries/" + path.Base(k.Selected().Tag.Get("path"))
	return c.inBulk(ctx, at, filter, rest.Object{}, "pending delivery")
}
