package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"postrider/server"
	"postrider/store"
)

type auditCmd struct {
	List auditListCmd `cmd:"" help:"List who did what, the newest first."`
}

type auditListCmd struct {
	newestFlags
	Actor        string     `help:"By this one: user:NAME, key:NAME, admin, cli, signIn or a role of the database." placeholder:"WHO"`
	Action       string     `help:"Only this, such as subscription_paused." placeholder:"ACTION"`
	Topic        string     `help:"About this topic." placeholder:"NAME"`
	Subscription string     `help:"About this event subscription." placeholder:"NAME"`
	From         *time.Time `help:"At this time or later, such as 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until        *time.Time `help:"Before this time." placeholder:"TIME"`
}

// Help is shown by audit list --help.
func (auditListCmd) Help() string {
	return "Examples:\n  postrider audit list --actor key:ci\n  postrider audit list --topic orders --from 2026-11-20T00:00:00Z -o json"
}

// Run executes audit list.
func (c *auditListCmd) Run(ctx context.Context) error {
	if err := spanGiven(c.From, c.Until); err != nil {
		return err
	}
	f := store.AuditFilter{Actor: c.Actor, Action: c.Action, Topic: c.Topic, Subscription: c.Subscription, From: c.From, To: c.Until}
	return c.read(ctx, func(r *store.Reader) error {
		id := func(l store.AuditLine) int64 { return l.AuditID }
		list, err := newest(c.Limit, id, func(turn store.Turn[int64]) (store.Page[store.AuditLine], *int64, error) {
			page, err := r.ReadAudit(ctx, f, turn)
			return page.Page, page.LookedTo, err
		})
		if err != nil {
			return err
		}
		return c.print(describedAs(list, server.DescribeAudit), func(w io.Writer) {
			fmt.Fprintln(w, "AT\tWHO\tFROM\tWHAT\tTOPIC\tSUBSCRIPTION\tDETAILS")
			for _, l := range list {
				fmt.Fprint(w, tableRow(l.At, l.Actor, l.Address, l.Action, l.Topic, l.Subscription, l.Details))
			}
		})
	})
}
