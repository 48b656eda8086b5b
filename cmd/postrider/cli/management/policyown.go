package management

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/policy"
	"postrider/server/management"
)

func policyURL(name string) string { return rest.ItemURL("/v1/policies", name) }

type policyPutCmd struct {
	rest.Flags
	rest.IfMatchFlag
	Name string `arg:"" help:"Name of the policy; no built-in one's."`
	File string `short:"f" required:"" help:"JSON as policy show -o json prints it, and as PUT /v1/policies/{name} takes it; - reads it from standard input." placeholder:"FILE"`
}

// Help is shown by policy put --help.
func (policyPutCmd) Help() string {
	return `Creates or replaces a policy of your own. Every node uses it within a second, also for pending deliveries.
What the file leaves out takes its default, see docs/policies.md.

Example:
  postrider policy show ga-2021 -o json > mine.json
  postrider policy put mine -f mine.json
  postrider policy explain mine --status 404
  postrider policy put mine -f mine.json --if-match "$(postrider policy show mine -o json | jq -r .etag)"`
}

// Run executes policy put.
func (c *policyPutCmd) Run(ctx context.Context) error {
	if _, builtIn := policy.Builtin(c.Name); builtIn {
		return builtInError(c.Name)
	}
	body, err := terminal.ReadFileOrInput(c.File)
	if err != nil {
		return err
	}
	if _, err := management.ReadPolicy(c.Name, body); err != nil {
		return terminal.Usagef("%s: %v", c.File, err)
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	before := client.Call(ctx, http.MethodGet, policyURL(c.Name), nil, nil)
	if before != nil && !rest.IsStatus(before, http.StatusNotFound) {
		return before
	}
	var now rest.Object
	if err := client.Call(ctx, http.MethodPut, policyURL(c.Name), json.RawMessage(body), &now,
		c.Headers()...); err != nil {
		return err
	}
	return c.Print(now, func(w io.Writer) {
		fmt.Fprintf(w, "Retry policy %s was %s.\n", c.Name, terminal.Either(before != nil, "made", "replaced"))
	})
}

type policyDeleteCmd struct {
	rest.Flags
	rest.IfMatchFlag
	terminal.ConfirmFlag
	Name string `arg:"" help:"Name of the policy."`
}

// Help is shown by policy delete --help.
func (policyDeleteCmd) Help() string {
	return `A policy that event subscriptions use is not deleted; they are named.

Examples:
  postrider policy delete mine
  postrider policy delete mine --yes`
}

// Run executes policy delete.
func (c *policyDeleteCmd) Run(ctx context.Context) error {
	if _, builtIn := policy.Builtin(c.Name); builtIn {
		return builtInError(c.Name)
	}
	if err := c.Confirm(func() (string, error) {
		err := c.Call(ctx, http.MethodGet, policyURL(c.Name), nil, nil)
		return fmt.Sprintf("Delete retry policy %s? Its settings are lost for good.", c.Name), err
	}); err != nil {
		return err
	}
	if err := c.Call(ctx, http.MethodDelete, policyURL(c.Name), nil, nil, c.Headers()...); err != nil {
		return err
	}
	return c.Done(terminal.Deleted("name", c.Name), "Retry policy %s was deleted.", c.Name)
}

func builtInError(name string) error {
	return fmt.Errorf("retry policy %q is built in and never changes: copy it under another name", name)
}

// policyFlags are those of verbs that read one policy: a built-in one needs no server.
type policyFlags struct {
	rest.Flags
	Name string `arg:"" help:"Name of the policy, for example ga-2021."`
}

// find is the policy, with what the REST API responds of it.
func (f policyFlags) find(ctx context.Context) (*policy.Policy, any, error) {
	if p, ok := policy.Builtin(f.Name); ok {
		return &p, management.DescribePolicy(&p, 0), nil
	}
	var shown rest.Object
	err := f.Call(ctx, http.MethodGet, policyURL(f.Name), nil, &shown)
	if f.NoServer(err) {
		var names []string
		for _, p := range policy.Builtins() {
			names = append(names, p.Name)
		}
		return nil, nil, terminal.Usagef("no policy %q: the policies are %s; for one of your own: %v",
			f.Name, strings.Join(names, ", "), err)
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := readPolicy(shown)
	return p, shown, err
}
