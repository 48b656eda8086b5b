package management

import (
	"context"
	"fmt"
	"io"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// hold changes a hold of the event subscription and prints what was done.
func (c *oneSubscription) hold(ctx context.Context, action string, body any, done string) error {
	return c.Act(ctx, rest.SubscriptionURL(c.Topic, c.Subscription)+"/"+action, body,
		"Event subscription %s of topic %s: %s.", c.Subscription, c.Topic, done)
}

type pauseCmd struct {
	oneSubscription
	StopTimeToLive *bool `api:"stopTimeToLive" help:"The pause does not count for the time to live of what it holds; --no-stop-time-to-live: it does. Neither leaves that as it is." negatable:""`
}

// Help is shown by subscription pause --help.
func (pauseCmd) Help() string {
	return `Nothing is lost: what is published meanwhile is held too. The next publish on every node obeys; attempts ` +
		`that are in progress, or begin within
100 ms, finish.

Examples:
  postrider subscription pause orders billing
  postrider subscription pause orders billing --stop-time-to-live`
}

// Run executes subscription pause.
func (c *pauseCmd) Run(ctx context.Context) error {
	return c.hold(ctx, "pause", rest.Given(c), "paused")
}

type resumeCmd struct{ oneSubscription }

// Help is shown by subscription resume --help.
func (resumeCmd) Help() string {
	return "What was held is released in waves by the service. Resuming what is not paused changes " +
		"nothing.\n\nExample:\n  postrider subscription resume orders billing"
}

// Run executes subscription resume.
func (c *resumeCmd) Run(ctx context.Context) error { return c.hold(ctx, "resume", nil, "resumed") }

type releaseCmd struct{ oneSubscription }

// Help is shown by subscription release --help.
func (releaseCmd) Help() string {
	return "If the policy holds the endpoint as a whole, the probation ends for all event subscriptions that share " +
		"it.\n\nExample:\n  postrider subscription release orders billing"
}

// Run executes subscription release.
func (c *releaseCmd) Run(ctx context.Context) error { return c.hold(ctx, "release", nil, "released") }

type probeCmd struct{ oneSubscription }

// Help is shown by subscription probe --help.
func (probeCmd) Help() string {
	return `Its success ends the probation, its failure begins the next hold. If the policy holds the endpoint as a ` +
		`whole, it is for all event
subscriptions that share it. subscription release ends a probation without one.

Example:
  postrider subscription probe orders billing`
}

// Run executes subscription probe.
func (c *probeCmd) Run(ctx context.Context) error {
	return c.hold(ctx, "probe", nil, "one delivery is let through now")
}

type validateCmd struct{ oneSubscription }

// Help is shown by subscription validate --help.
func (validateCmd) Help() string {
	return `At any time; after a failed validation it is the way on. An endpoint that fails is rejected, and nothing is ` +
		`changed.

Example:
  postrider subscription validate orders billing`
}

// Run executes subscription validate.
func (c *validateCmd) Run(ctx context.Context) error {
	var now rest.Object
	err := terminal.Await("the endpoint answers its validation handshake", func() error {
		return c.post(ctx, "validate", nil, &now)
	})
	if err != nil {
		return err
	}
	return c.Print(now, func(w io.Writer) { printSubscription(w, now) })
}

type testDeliveryCmd struct{ oneSubscription }

// Help is shown by subscription test-delivery --help.
func (testDeliveryCmd) Help() string {
	return `An event of type postrider.TestEvent is stored and delivered to this event subscription, whatever its ` +
		`filter says, and to no other.
delivery show shows what the endpoint responds.

Example:
  postrider subscription test-delivery orders billing`
}

// Run executes subscription test-delivery.
func (c *testDeliveryCmd) Run(ctx context.Context) error {
	var sent rest.Object
	if err := c.post(ctx, "testDelivery", nil, &sent); err != nil {
		return err
	}
	return c.Print(sent, func(w io.Writer) {
		fmt.Fprintf(w, "A sample event is delivery %s; see postrider delivery show %[1]s.\n", rest.TextAt(sent, "deliveryId"))
	})
}
