package main

import (
	"context"
	"time"
)

type auditCmd struct {
	List auditListCmd `cmd:"" help:"List who did what, the newest first."`
}

type auditListCmd struct {
	restFlags
	limitFlag
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

var auditColumns = []column{
	{title: "AT", path: "at"},
	{title: "WHO", path: "actor"},
	{title: "FROM", path: "address"},
	{title: "WHAT", path: "action"},
	{title: "TOPIC", path: "topic"},
	{title: "SUBSCRIPTION", path: "subscription"},
	{title: "DETAILS", path: "details"},
}

// Run executes audit list.
func (c *auditListCmd) Run(ctx context.Context) error {
	if err := checkSpan(c.From, c.Until); err != nil {
		return err
	}
	return c.list(ctx, "/v1/audit", given(c), c.Limit, auditColumns)
}
