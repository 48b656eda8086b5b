package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/alecthomas/kong"

	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

// queueFlags name an event subscription with delivery mode Queue, and a key for it.
type queueFlags struct {
	rest.ServerFlags
	Topic        string `arg:"" predictor:"topic" help:"Name of the topic."`
	Subscription string `arg:"" predictor:"subscription" help:"Name of the event subscription. Its delivery mode is Queue."`
	Key          string `help:"Access key of the topic; without one the API key receives: its scope must be receive, or admin." env:"POSTRIDER_TOPIC_KEY" placeholder:"KEY"`
}

// ProvideClient gives kong a client that needs no API key if there is an access key.
func (f *queueFlags) ProvideClient() (*rest.Client, error) { return f.ClientForTopic(f.Key) }

// call makes a request of a consumer.
func (f *queueFlags) call(
	ctx context.Context, client *rest.Client, operation string, parameters rest.Object, body, into any,
) error {
	parameters["api-version"] = "2024-06-01"
	path := fmt.Sprintf("/topics/%s/eventsubscriptions/%s:%s", url.PathEscape(f.Topic), url.PathEscape(f.Subscription),
		operation)
	var headers []string
	if f.Key != "" {
		headers = []string{"Aeg-Sas-Key", f.Key}
		keyless := *client
		keyless.Key = ""
		client = &keyless
	}
	return client.Call(ctx, http.MethodPost, rest.QueryURL(path, parameters), body, into, headers...)
}

// settle ends the locks of tokens. The error counts the lost ones.
func (f *queueFlags) settle(
	ctx context.Context, client *rest.Client, operation string, parameters rest.Object, tokens []string,
) error {
	const most = 1000 // tokens in a request
	lost, first := 0, ""
	for len(tokens) > 0 {
		n := min(len(tokens), most)
		var settled struct {
			FailedLockTokens []struct {
				LockToken string
				Error     struct{ Code, Message string }
			}
		}
		if err := f.call(ctx, client, operation, parameters, rest.Object{"lockTokens": tokens[:n]}, &settled); err != nil {
			return err
		}
		for _, failed := range settled.FailedLockTokens {
			if lost++; first == "" {
				first = fmt.Sprintf("%s: %s: %s", failed.LockToken, failed.Error.Code, failed.Error.Message)
			}
		}
		tokens = tokens[n:]
	}
	if lost > 0 {
		return fmt.Errorf("%s failed for %s; first: %s", operation, terminal.Plural(lost, "lock token"), first)
	}
	return nil
}

// ReceiveCmd is receive.
type ReceiveCmd struct {
	queueFlags
	terminal.OutputFlag
	Max    int           `help:"Limit of events in a receive." default:"10" range:"1..100" placeholder:"N"`
	Wait   time.Duration `help:"Time to wait for the first event, at least 10s." default:"60s" range:"10.." placeholder:"SPAN"`
	Ack    bool          `help:"Acknowledge the events after they are printed: they are delivered." xor:"end"`
	Lock   bool          `help:"Keep the events locked and print their lock tokens, for acknowledge, release and reject." xor:"end"`
	Follow bool          `help:"Receive again and again until Ctrl-C; requires --ack or --lock."`
}

// Help is shown by receive --help.
func (ReceiveCmd) Help() string {
	return `Prints the events that are available, or the first ones that arrive within --wait. Without --ack and --lock the
events are released after they are printed, so that consumers can receive them. Each receive counts as a delivery: after
the event subscription's maxDeliveryCount, a released event becomes a dead letter. With -o json, each line is one event
as it was published; with --lock, an object with brokerProperties and event.

Examples:
  postrider receive orders ledger
  postrider receive orders ledger --ack --follow -o json
  postrider receive orders ledger --max 1 --lock`
}

// lockedEvent is an event as the API returns it.
type lockedEvent struct {
	BrokerProperties struct {
		LockToken     string `json:"lockToken"`
		DeliveryCount int    `json:"deliveryCount"`
	} `json:"brokerProperties"`
	Event json.RawMessage `json:"event"`
}

// Run executes receive.
func (c *ReceiveCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	if c.Follow && !c.Ack && !c.Lock {
		return terminal.Usagef("--follow requires --ack or --lock: without them, released events would be received again")
	}
	if c.Follow {
		fmt.Fprintln(std.Err, "Receiving. Press Ctrl-C to stop.")
	}
	for {
		received, err := c.receive(ctx, client)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case len(received) > 0:
			// Settled also after Ctrl-C: the events were received.
			if err := c.show(context.WithoutCancel(ctx), std.Out, client, received); err != nil {
				return err
			}
		case !c.Follow:
			fmt.Fprintf(std.Err, "No event within %s.\n", c.Wait)
		}
		if !c.Follow {
			return nil
		}
	}
}

// receive waits in requests of at most 30 s, which proxies let through.
func (c *ReceiveCmd) receive(ctx context.Context, client *rest.Client) ([]lockedEvent, error) {
	requests := math.Ceil(c.Wait.Seconds() / 30)
	seconds := max(10, int(math.Ceil(c.Wait.Seconds()/requests)))
	for range int(requests) {
		var page struct{ Value []lockedEvent }
		err := c.call(ctx, client, "receive", rest.Object{"maxEvents": c.Max, "maxWaitTime": seconds}, nil, &page)
		if err != nil || len(page.Value) > 0 {
			return page.Value, err
		}
	}
	return nil, nil
}

// show prints the events and ends their locks.
func (c *ReceiveCmd) show(ctx context.Context, out io.Writer, client *rest.Client, received []lockedEvent) error {
	err := c.print(out, received)
	tokens := make([]string, len(received))
	for i := range received {
		tokens[i] = received[i].BrokerProperties.LockToken
	}
	switch {
	case c.Lock:
		return err
	case c.Ack && err == nil:
		return c.settle(ctx, client, "acknowledge", rest.Object{}, tokens)
	}
	return errors.Join(err, c.settle(ctx, client, "release", rest.Object{}, tokens))
}

func (c *ReceiveCmd) print(out io.Writer, received []lockedEvent) error {
	if c.Output != "table" {
		for _, r := range received {
			if err := c.PrintOne(out, terminal.Either[any](c.Lock, r, r.Event), ""); err != nil {
				return err
			}
		}
		return nil
	}
	columns := rest.Columns("COUNT brokerProperties.deliveryCount", "ID event.id", "TYPE event.type",
		"SUBJECT event.subject")
	if c.Lock {
		columns = append(columns, rest.Columns("LOCK TOKEN brokerProperties.lockToken")...)
	}
	list := make([]rest.Object, len(received))
	for i, r := range received {
		var event rest.Object
		if err := json.Unmarshal(r.Event, &event); err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		list[i] = rest.Object{"event": event, "brokerProperties": rest.Object{
			"lockToken": r.BrokerProperties.LockToken, "deliveryCount": r.BrokerProperties.DeliveryCount,
		}}
	}
	return c.Print(out, list, func(w io.Writer) { rest.PrintColumns(w, columns, list) })
}

// SettleCmd is acknowledge and reject.
type SettleCmd struct {
	queueFlags
	terminal.OutputFlag
	Tokens []string `arg:"" name:"token" help:"Lock tokens, which receive --lock prints."`
}

// Run executes acknowledge or reject.
func (c *SettleCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client, k *kong.Context) error {
	return c.run(ctx, std, client, k.Selected().Name, rest.Object{})
}

func (c *SettleCmd) run(
	ctx context.Context, std terminal.Streams, client *rest.Client, operation string, parameters rest.Object,
) error {
	if err := c.settle(ctx, client, operation, parameters, c.Tokens); err != nil {
		return err
	}
	return c.Print(std.Out, rest.Object{"succeededLockTokens": c.Tokens}, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s.\n", operation, terminal.Plural(len(c.Tokens), "event"))
	})
}

// ReleaseCmd is release.
type ReleaseCmd struct {
	SettleCmd
	Delay string `help:"Seconds until the events are available again: 0, 10, 60, 600 or 3600." enum:"0,10,60,600,3600" default:"0" placeholder:"N"`
}

// Run executes release.
func (c *ReleaseCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	return c.run(ctx, std, client, "release", rest.Object{"releaseDelayInSeconds": c.Delay})
}
