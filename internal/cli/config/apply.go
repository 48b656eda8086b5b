package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
	v1 "postrider/server/v1"
)

// ApplyCmd is apply.
type ApplyCmd struct {
	rest.ServerFlags
	File   string `short:"f" required:"" help:"YAML or JSON, also a list of the Azure CLI or an Azure Resource Manager template; - reads standard input." placeholder:"FILE"`
	Yes    bool   `help:"Apply the changes without confirmation." xor:"mode"`
	DryRun bool   `help:"Only show the changes; the exit code is 3 if there are any, else 0." xor:"mode"`
	Prune  bool   `help:"Also delete topics, event subscriptions and your own retry policies that the file does not name. Without it nothing is deleted."`
	Topic  string `help:"For Azure's lists and templates: the topic of all their event subscriptions." placeholder:"NAME"`

	Endpoint map[string]string `help:"Replace the endpoint of an event subscription, for example by one on this machine. Its name may have its topic before it: TOPIC/NAME." placeholder:"NAME=URL" mapsep:"none"`

	ConnectionString map[string]string `help:"Connection string of an event subscription's destination in Azure, which lists and templates do not have: a file, or - for standard input." placeholder:"NAME=FILE" mapsep:"none"`

	Output string `short:"o" help:"table, or json or yaml: the changes as a list, before they are applied." enum:"table,json,yaml" default:"table"`
}

const (
	maxApplied      = 16 << 20 // bytes: some thousand event subscriptions
	exitWouldChange = 3        // exit code of a dry run with changes
)

// Help is shown by apply --help.
func (ApplyCmd) Help() string {
	return `The file has topics, subscriptions and policies with the property names of the API; settings that it leaves
out take their defaults. It may also be the output of az eventgrid event-subscription list --include-full-endpoint-url
true: parts that postrider does not have are listed. The whole file is checked first. Then policies, topics and event
subscriptions are written in this order, until the first error. Changes that other clients make meanwhile are not
overwritten.

Examples:
  postrider apply -f postrider.yaml
  postrider apply -f postrider.yaml --dry-run
  postrider apply -f azure.json --topic orders --yes`
}

// Run executes apply.
func (c *ApplyCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	text, err := terminal.ReadUpTo(std.In, c.File, maxApplied)
	if err != nil {
		return err
	}
	flags := applyFlags{topic: c.Topic, endpoints: c.Endpoint, connectionStrings: map[string]string{}}
	for name, file := range c.ConnectionString {
		content, err := terminal.ReadFileOrInput(std.In, file)
		if err != nil {
			return err
		}
		flags.connectionStrings[name] = strings.TrimSpace(string(content))
	}
	file, err := readApply(text, flags)
	if err != nil {
		return terminal.Usagef("%s: %v", c.File, err)
	}
	for _, note := range file.notes {
		fmt.Fprintln(std.Err, "not supported:", terminal.PlainLines(note))
	}
	prune := "none"
	if c.Prune {
		prune = terminal.Either(file.azure, "subscriptions", "all") // such a list names no other objects
	}
	plan, todo, err := file.compare(ctx, std.Err, client, prune)
	if err != nil {
		return err
	}
	show := func(w io.Writer) { showChanges(w, plan.Changes) }
	if err := (terminal.OutputFlag{Output: c.Output}).Print(std.Out, plan.Changes, show); err != nil {
		return err
	}
	switch {
	case c.DryRun && todo > 0:
		return &terminal.ExitError{Code: exitWouldChange}
	case c.DryRun, todo == 0:
		return nil
	}
	if err := c.confirm(std, todo); err != nil {
		return err
	}
	out := terminal.Either(c.Output == "table", std.Out, std.Err) // standard output has only the list of changes
	verbs := map[string]string{"create": "created", "update": "changed", "delete": "deleted"}
	return file.apply(ctx, std.Err, client, prune, plan.ETag, todo, func(ch v1.ConfigurationChange) {
		fmt.Fprintf(out, "%s %s\n", verbs[ch.Change], terminal.OneLine(ch.Title()))
	})
}

// compare returns what would change, and the number of changes. prune chooses what is deleted, as in the REST API.
func (f *applyFile) compare(
	ctx context.Context, stderr io.Writer, client *rest.Client, prune string,
) (plan v1.ConfigurationChanges, todo int, err error) {
	path := rest.QueryURL("/v1/apply", rest.Object{"prune": prune, "dryRun": true})
	err = terminal.Await(stderr, "the file is compared", func() error {
		return client.Call(ctx, http.MethodPost, path, f.objects, &plan)
	})
	for i := range plan.Changes {
		if plan.Changes[i].Change != "none" {
			todo++
		}
	}
	return plan, todo, err
}

// apply makes the changes that were compared, unless another client has changed the configuration since, and calls made
// for each.
func (f *applyFile) apply(
	ctx context.Context, stderr io.Writer, client *rest.Client, prune, etag string, todo int,
	made func(v1.ConfigurationChange),
) error {
	path := rest.QueryURL("/v1/apply", rest.Object{"prune": prune})
	for done := 0; done < todo; { // a request ends after some time
		before, plan := done, v1.ConfigurationChanges{}
		err := terminal.Await(stderr, fmt.Sprintf("change %d of %d is applied", done+1, todo), func() error {
			return client.Call(ctx, http.MethodPost, path, f.objects, &plan, "If-Match", etag)
		})
		for _, ch := range plan.Changes {
			switch {
			case ch.Applied:
				done++
				made(ch)
			case ch.Change != "none" && plan.Error != nil && err == nil:
				err = fmt.Errorf("%s was rejected: %w", ch.Title(), &rest.Error{Body: *plan.Error})
			}
		}
		if err == nil && done == before {
			err = errors.New("the server has changed nothing")
		}
		if err != nil {
			return fmt.Errorf("%d of %s applied; %w\nfix this and apply the file again", done,
				terminal.Plural(todo, "change"), err)
		}
		etag = plan.ETag
	}
	return nil
}

// showChanges prints the changes, with a line for each setting.
func showChanges(w io.Writer, changes []v1.ConfigurationChange) {
	marks, counts := map[string]string{"create": "+", "update": "~", "delete": "-"}, map[string]int{}
	for i := range changes {
		ch := &changes[i]
		if counts[ch.Change]++; ch.Change == "none" {
			continue
		}
		fmt.Fprintf(w, "%s %s\n", marks[ch.Change], terminal.OneLine(ch.Title()))
		for _, p := range ch.Properties {
			line := fmt.Sprintf("~ %s: %s → %s", p.Property, p.Before, p.After)
			if p.Before == "" {
				line = fmt.Sprintf("+ %s: %s", p.Property, p.After)
			} else if p.After == "" {
				line = fmt.Sprintf("- %s: %s", p.Property, p.Before)
			}
			fmt.Fprintf(w, "    %s\n", terminal.EscapeControls(line))
		}
	}
	fmt.Fprintf(w, "(%d to create, %d to change, %d to delete, %d unchanged)\n", counts["create"], counts["update"],
		counts["delete"], counts["none"])
}

func (c *ApplyCmd) confirm(std terminal.Streams, todo int) error {
	if c.Yes {
		return nil
	}
	if c.File == "-" || !terminal.IsTerminal(std.In) {
		return terminal.Usagef("standard input is not a terminal: use --yes to apply these changes, or --dry-run to only " +
			"show them")
	}
	return terminal.RequireYes(std, fmt.Sprintf("Apply %s?", terminal.Plural(todo, "change")))
}
