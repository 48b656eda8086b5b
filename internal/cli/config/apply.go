package config

import (
	"context"
	"fmt"

	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

// ApplyCmd is apply.
type ApplyCmd struct {
	rest.ServerFlags
	File   string `short:"f" required:"" help:"YAML or JSON; - reads standard input." placeholder:"FILE"`
	Yes    bool   `help:"Apply the changes without confirmation." xor:"mode"`
	DryRun bool   `help:"Only show the changes; the exit code is 3 if there are any, else 0." xor:"mode"`
	Prune  bool   `help:"Also delete topics, event subscriptions and your own retry policies that the file does not name. Without it nothing is deleted."`
	Topic  string `help:"For the list of the Azure CLI: the topic of all its event subscriptions." placeholder:"NAME"`
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
	file, err := readApply(text, c.Topic)
	if err != nil {
		return terminal.Usagef("%s: %v", c.File, err)
	}
	a := &applier{client: client, file: file, prune: c.Prune, out: std.Out, stderr: std.Err}
	if c.Output != "table" {
		a.out = std.Err // standard output has only the list of changes
	}
	changes, err := a.plan(ctx)
	if err != nil {
		return err
	}
	if err := c.show(std, changes, file); err != nil {
		return err
	}
	todo := countChanges(changes)
	switch {
	case c.DryRun && todo > 0:
		return &terminal.ExitError{Code: exitWouldChange}
	case c.DryRun, todo == 0:
		return nil
	}
	if err := c.confirm(std, todo); err != nil {
		return err
	}
	return a.write(ctx, changes)
}

// countChanges counts the objects that are not as declared.
func countChanges(changes []change) (n int) {
	for i := range changes {
		if changes[i].mark != same {
			n++
		}
	}
	return n
}

// changeShown is the form of a change for -o json.
type changeShown struct {
	Kind       string     `json:"kind"`
	Topic      string     `json:"topic,omitempty"`
	Name       string     `json:"name"`
	Change     string     `json:"change"` // create, update, delete or none
	Properties []diffLine `json:"properties"`
}

func (c *ApplyCmd) show(std terminal.Streams, changes []change, file *applyFile) error {
	for _, note := range file.notes {
		fmt.Fprintln(std.Err, "not supported:", terminal.PlainLines(note))
	}
	if c.Output != "table" {
		names := map[string]string{"+": "create", "~": "update", "-": "delete", same: "none"}
		shown := make([]changeShown, len(changes))
		for i := range changes {
			ch := &changes[i]
			shown[i] = changeShown{ch.kind, ch.topic, ch.name, names[ch.mark], append([]diffLine{}, ch.lines...)}
		}
		return terminal.OutputFlag{Output: c.Output}.Print(std.Out, shown, nil)
	}
	counts := map[string]int{}
	for i := range changes {
		ch := &changes[i]
		counts[ch.mark]++
		if ch.mark == same {
			continue
		}
		fmt.Fprintf(std.Out, "%s %s\n", ch.mark, ch.title())
		for _, line := range ch.lines {
			fmt.Fprintf(std.Out, "    %s\n", line)
		}
	}
	_, err := fmt.Fprintf(std.Out, "(%d to create, %d to change, %d to delete, %d unchanged)\n", counts["+"], counts["~"],
		counts["-"], counts[same])
	return err
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
