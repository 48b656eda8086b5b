package management

import (
	"context"
	"fmt"
	"os"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// ApplyCmd is apply.
type ApplyCmd struct {
	rest.ServerFlags
	File   string `short:"f" required:"" help:"YAML or JSON; - reads standard input." placeholder:"FILE"`
	Yes    bool   `help:"Make the changes without confirmation." xor:"mode"`
	DryRun bool   `help:"Only show what would change; the exit code is 3 if something would, 0 if nothing." xor:"mode"`
	Prune  bool   `help:"Also delete what the file does not name: topics, event subscriptions, your own retry policies. Without it nothing is deleted."`
	Topic  string `help:"Of the Azure CLI's list: the topic of all its event subscriptions." placeholder:"NAME"`
	Output string `short:"o" help:"table, or json or yaml: the changes as a list, before any is made." enum:"table,json,yaml" default:"table"`
}

// maxApplied has room for a list of some thousand event subscriptions.
const maxApplied = 16 << 20

// exitWouldChange is the exit code of a dry run that found something to change.
const exitWouldChange = 3

// Run executes apply.
func (c *ApplyCmd) Run(ctx context.Context) error {
	text, err := terminal.ReadUpTo(c.File, maxApplied)
	if err != nil {
		return err
	}
	file, err := readApply(text, c.Topic)
	if err != nil {
		return terminal.Usagef("%s: %v", c.File, err)
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	a := &applier{client: client, file: file, prune: c.Prune, out: os.Stdout}
	if c.Output != "table" {
		a.out = os.Stderr // the list of changes stays one document
	}
	changes, err := a.plan(ctx)
	if err != nil {
		return err
	}
	if err := c.show(changes, file); err != nil {
		return err
	}
	switch todo := pending(changes); {
	case c.DryRun && todo > 0:
		return &terminal.ExitError{Code: exitWouldChange}
	case c.DryRun, todo == 0:
		return nil
	default:
		if err := c.ask(todo); err != nil {
			return err
		}
		return a.write(ctx, changes)
	}
}

func pending(changes []change) (n int) {
	for i := range changes {
		if changes[i].mark != same {
			n++
		}
	}
	return n
}

// changeShown is a change as -o json prints it.
type changeShown struct {
	Kind       string          `json:"kind"`
	Topic      string          `json:"topic,omitempty"`
	Name       string          `json:"name"`
	Change     string          `json:"change"` // create, update, delete or none
	Properties []propertyShown `json:"properties"`
}

type propertyShown struct {
	Property string `json:"property"`
	Before   string `json:"before"`
	After    string `json:"after"`
}

func (c *ApplyCmd) show(changes []change, file *applyFile) error {
	for _, note := range file.notOffered {
		fmt.Fprintln(os.Stderr, "not offered:", terminal.PlainLines(note))
	}
	if c.Output != "table" {
		shown := []changeShown{}
		for i := range changes {
			shown = append(shown, changes[i].shown())
		}
		return terminal.OutputFlag{Output: c.Output}.Print(shown, nil)
	}
	counts := map[string]int{}
	for i := range changes {
		ch := &changes[i]
		counts[ch.mark]++
		if ch.mark == same {
			continue
		}
		fmt.Printf("%s %s\n", ch.mark, ch.title())
		for _, line := range ch.lines {
			fmt.Printf("    %s\n", line)
		}
	}
	_, err := fmt.Printf("(%d to make, %d to change, %d to delete, %d as they are)\n", counts["+"], counts["~"],
		counts["-"], counts[same])
	return err
}

func (ch *change) shown() changeShown {
	s := changeShown{
		Kind: ch.kind, Topic: ch.topic, Name: ch.name, Properties: []propertyShown{},
		Change: map[string]string{"+": "create", "~": "update", "-": "delete", same: "none"}[ch.mark],
	}
	for _, line := range ch.lines {
		s.Properties = append(s.Properties, propertyShown{line.property, line.before, line.after})
	}
	return s
}

func (c *ApplyCmd) ask(todo int) error {
	if c.Yes {
		return nil
	}
	if c.File == "-" || !terminal.IsTerminal(os.Stdin) {
		return terminal.Usagef("standard input is not a terminal: use --yes to make these changes, or --dry-run to see " +
			"them only")
	}
	return terminal.AskYes(fmt.Sprintf("Make %s?",
		terminal.Either(todo == 1, "this change", fmt.Sprintf("these %d changes", todo))))
}
