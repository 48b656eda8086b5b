package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// selectionFlags name a list of dead letters or deliveries, however long it is.
type selectionFlags struct {
	IDsFrom   string      `name:"ids-from" help:"Those whose ids this file has, one per line or separated by spaces; - is standard input." placeholder:"FILE"`
	Selection selectionID `help:"Those of this selection." placeholder:"ID"`
}

func (f *selectionFlags) given() bool { return *f != selectionFlags{} }

func (f *selectionFlags) check() error {
	if f.IDsFrom != "" && f.Selection != "" {
		return terminal.Usagef("use either --ids-from or --selection, not both")
	}
	return nil
}

// ids reads the ids of --ids-from.
func (f *selectionFlags) ids() ([]string, error) {
	text, err := readInput(f.IDsFrom)
	if err != nil {
		return nil, fmt.Errorf("read the ids: %w", err)
	}
	list := strings.Fields(string(text))
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no ids", f.IDsFrom)
	}
	return list, nil
}

// deadLetters is the selection of the flags; it is created from ids.
func (f *selectionFlags) deadLetters(ctx context.Context, client *rest.Client) (rest.Object, error) {
	if f.Selection != "" {
		return f.read(ctx, client)
	}
	list, err := f.ids()
	if err != nil {
		return nil, err
	}
	for _, id := range list {
		if _, err := readID[deadLetterID]([]byte(id), "id of a dead letter, which is a UUID"); err != nil {
			return nil, err
		}
	}
	return selectItems(ctx, client, rest.Object{"deadLetterIds": list})
}

// deliveries is the selection of the flags; it is created from ids.
func (f *selectionFlags) deliveries(ctx context.Context, client *rest.Client) (rest.Object, error) {
	if f.Selection != "" {
		return f.read(ctx, client)
	}
	list, err := f.ids()
	if err != nil {
		return nil, err
	}
	ids := make([]int64, len(list))
	for i, text := range list {
		if ids[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, terminal.Usagef("%q: not the id of a delivery, which is a number", text)
		}
	}
	return selectItems(ctx, client, rest.Object{"deliveryIds": ids})
}

func (f *selectionFlags) read(ctx context.Context, client *rest.Client) (s rest.Object, err error) {
	err = client.Call(ctx, http.MethodGet, rest.ItemURL("/v1/selections", f.Selection), nil, &s)
	return s, err
}

// selectItems creates a selection.
func selectItems(ctx context.Context, client *rest.Client, spec rest.Object) (s rest.Object, err error) {
	if err = client.Call(ctx, http.MethodPost, "/v1/selections", spec, &s); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "Selection %s: %s\n", rest.TextAt(s, "selectionId"), selectedText(s))
	return s, nil
}

// selectedText counts the items of a selection.
func selectedText(s rest.Object) string {
	thing := terminal.Either(s["kind"] == "deliveries", "delivery", "dead letter")
	return terminal.Plural(integerAt(s, "count"), thing)
}

// preview prints what the items of a selection are now.
func (f *bulkFlags) preview(ctx context.Context, client *rest.Client, s rest.Object) error {
	var found rest.Object
	at := rest.ItemURL("/v1/selections", rest.TextAt(s, "selectionId"))
	if err := client.Call(ctx, http.MethodGet, at, nil, &found); err != nil {
		return err
	}
	return f.Print(found, func(w io.Writer) {
		if counted := integerAt(found, "grouped"); 0 < counted && counted < integerAt(found, "count") {
			fmt.Fprintf(w, "Groups of the first %d:\n", counted)
		}
		rest.PrintColumns(w, columns("COUNT count", "TOPIC topic", "SUBSCRIPTION subscription", "REASON reason",
			"STATE stateAndHold()", "NOT POSSIBLE message"), rest.Objects(found, "groups"))
	})
}

// onSelection starts an operation on a selection, or prints its preview with --dry-run.
func (f *bulkFlags) onSelection(
	ctx context.Context, client *rest.Client, s rest.Object, action string, settings rest.Object,
) error {
	if f.DryRun {
		return f.preview(ctx, client, s)
	}
	return f.start(ctx, rest.ItemURL("/v1/selections", rest.TextAt(s, "selectionId"))+"/"+action, settings, "")
}

// deliveryActCmd retries or cancels one delivery, or many as an operation. The tags of the verb are those of
// rest.ActVerb; path is for one.
type deliveryActCmd struct {
	bulkFlags
	deliveryFilter
	selectionFlags
	ID int64 `arg:"" optional:"" name:"id" help:"Id of the delivery, as delivery list shows it, instead of a filter."`
}

func (c *deliveryActCmd) Run(ctx context.Context, k *kong.Context, client *rest.Client) error {
	filtered := c.deliveryFilter != deliveryFilter{}
	chosen := 0
	for _, given := range []bool{c.ID != 0, filtered, c.given()} {
		if given {
			chosen++
		}
	}
	switch {
	case chosen != 1:
		return terminal.Usagef("choose deliveries with one of an id, filters such as --topic, --ids-from and --selection")
	case c.ID != 0 && (c.DryRun || c.Rate != 0 || c.NoWait):
		return terminal.Usagef("--dry-run, --rate and --no-wait are for many deliveries")
	case c.ID != 0:
		return rest.Act(ctx, c.Flags, k, nil)
	}
	if err := errors.Join(c.check(), c.checkRate()); err != nil {
		return err
	}
	var s rest.Object
	var err error
	if filtered {
		filter, wrong := rest.Filter(&c.deliveryFilter)
		if wrong != nil {
			return wrong
		}
		s, err = selectItems(ctx, client, rest.Object{"deliveryFilter": filter})
	} else {
		s, err = c.deliveries(ctx, client)
	}
	if err != nil {
		return err
	}
	return c.onSelection(ctx, client, s, k.Selected().Tag.Get("action"), rest.Object{})
}

// operationResultsCmd is operation results.
type operationResultsCmd struct {
	rest.Flags
	Operation operationID `arg:"" help:"Id of the operation, as operation list shows it."`
	Limit     int         `help:"How many to list at most: 1 to 10000." default:"200" range:"1..10000" placeholder:"N"`
}

func (c *operationResultsCmd) Run(ctx context.Context, client *rest.Client) error {
	list, err := client.First(ctx, rest.ItemURL("/v1/operations", c.Operation)+"/results", rest.Object{}, c.Limit)
	if err != nil {
		return err
	}
	return c.Print(list, func(w io.Writer) {
		rest.PrintColumns(w, columns("POSITION position", "DEAD LETTER deadLetterId", "DELIVERY deliveryId",
			"COUNTED AS countedAs", "RESULT result", "MESSAGE message"), list)
	})
}
