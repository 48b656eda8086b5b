package main

import (
	"context"
	"time"

	"postrider/store"
)

// oneSubscription is what these verbs take.
type oneSubscription struct {
	databaseFlags
	outputFlag
	Topic        string `arg:"" help:"Name of the topic."`
	Subscription string `arg:"" help:"Name of the event subscription."`
}

// change changes a hold and says so.
func (c *oneSubscription) change(ctx context.Context, done string, change func(context.Context, *store.Operator) error) error {
	return c.operate(ctx, func(ctx context.Context, o *store.Operator) error {
		if err := change(ctx, o); err != nil {
			return err
		}
		now := func() (any, error) {
			held, err := o.Holding(ctx, c.Topic, c.Subscription)
			if err != nil {
				return nil, err
			}
			return shownHold{c.Topic, c.Subscription, held.ProvisioningState, held.Hold, held.HoldCause, held.HoldSince, held.HoldUntil, held.HeldDeliveries}, nil
		}
		return c.did(now, "Event subscription %s of topic %s: %s.", c.Subscription, c.Topic, done)
	})
}

// shownHold is what these verbs print as JSON: how the event subscription is held, as the view postrider.event_subscriptions has it. All of
// its settings, which the API answers, take the service's key.
type shownHold struct {
	Topic             string     `json:"topic"`
	Name              string     `json:"name"`
	ProvisioningState string     `json:"provisioningState"`
	Hold              *string    `json:"hold"`
	HoldCause         *string    `json:"holdCause"`
	HoldSince         *time.Time `json:"holdSince"`
	HoldUntil         *time.Time `json:"holdUntil"`
	HeldDeliveries    int64      `json:"heldDeliveries"`
}

type pauseCmd struct {
	oneSubscription
	StopTimeToLive *bool `help:"The pause does not count for the time to live of what it holds; --no-stop-time-to-live: it does. Neither leaves that as it is." negatable:""`
}

// Help is shown by subscription pause --help.
func (pauseCmd) Help() string {
	return `Nothing is lost: what is published meanwhile is held too. The next publish on every node obeys; attempts that are under way, or begin within
100 ms, finish.

Examples:
  postrider subscription pause orders billing
  postrider subscription pause orders billing --stop-time-to-live`
}

// Run executes subscription pause.
func (c *pauseCmd) Run(ctx context.Context) error {
	return c.change(ctx, "paused", func(ctx context.Context, o *store.Operator) error {
		return o.Pause(ctx, c.Topic, c.Subscription, c.StopTimeToLive)
	})
}

type resumeCmd struct{ oneSubscription }

// Help is shown by subscription resume --help.
func (resumeCmd) Help() string {
	return "What was held is released in waves by the service. Resuming what is not paused is nothing.\n\nExample:\n  postrider subscription resume orders billing"
}

// Run executes subscription resume.
func (c *resumeCmd) Run(ctx context.Context) error {
	return c.change(ctx, "resumed", func(ctx context.Context, o *store.Operator) error { return o.Resume(ctx, c.Topic, c.Subscription) })
}

type releaseCmd struct{ oneSubscription }

// Help is shown by subscription release --help.
func (releaseCmd) Help() string {
	return "Where the policy rests the endpoint as a whole, it ends for all event subscriptions that share it.\n\nExample:\n  postrider subscription release orders billing"
}

// Run executes subscription release.
func (c *releaseCmd) Run(ctx context.Context) error {
	return c.change(ctx, "released", func(ctx context.Context, o *store.Operator) error { return o.Release(ctx, c.Topic, c.Subscription) })
}
