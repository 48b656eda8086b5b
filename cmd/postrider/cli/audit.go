package cli

import (
	"context"
	"time"

	"postrider/cmd/postrider/cli/rest"
)

// AuditCmd is audit.
type AuditCmd struct {
	List auditListCmd `cmd:"" help:"List who did what, the newest first."`
}

type auditListCmd struct {
	rest.Flags
	rest.LimitFlag
	Actor        string     `api:"actor" help:"By this one: user:NAME, key:NAME, admin, cli, signIn or a role of the database." placeholder:"WHO"`
	Action       string     `api:"action" help:"Only this, such as subscription_paused." placeholder:"ACTION"`
	Topic        string     `api:"topic" help:"About this topic." placeholder:"NAME"`
	Subscription string     `api:"subscription" help:"About this event subscription." placeholder:"NAME"`
	From         *time.Time `api:"from" help:"At this time or later: 1h (an hour ago), 2026-11-20 or 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until        *time.Time `api:"until" aliases:"to" help:"Before this time." placeholder:"TIME"`
}

// Help is shown by audit list --help.
func (auditListCmd) Help() string {
	return "Examples:\n  postrider audit list --actor key:ci\n  postrider audit list --topic orders --from 24h -o json"
}

var auditColumns = []rest.Column{
	{Title: "AT", Path: "at"},
	{Title: "WHO", Path: "actor"},
	{Title: "FROM", Path: "address"},
	{Title: "WHAT", Path: "action"},
	{Title: "TOPIC", Path: "topic"},
	{Title: "SUBSCRIPTION", Path: "subscription"},
	{Title: "DETAILS", Path: "details"},
}

// Run executes audit list.
func (c *auditListCmd) Run(ctx context.Context) error {
	if err := rest.CheckSpan(c.From, c.Until); err != nil {
		return err
	}
	return c.List(ctx, "/v1/audit", rest.Given(c), c.Limit, auditColumns)
}
