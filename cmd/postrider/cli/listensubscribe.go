package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"

	"postrider/cmd/postrider/cli/management"
	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

const (
	// temporaryLife is how long the event subscription outlives a program that was killed.
	temporaryLife = time.Hour
	// renewEvery is how often its end is put off.
	renewEvery = 15 * time.Minute
	// removeWithin is what the end of the program waits for.
	removeWithin = 5 * time.Second
)

// temporary is an event subscription that goes with this program; its client is nil where there is none.
type temporary struct {
	client      *rest.Client
	topic, name string
}

// subscribe makes it, once the receiver can answer the handshake.
func (c *ListenCmd) subscribe(ctx context.Context, base string, notes io.Writer) (*temporary, error) {
	if c.Topic == "" {
		if c.Name != "" || c.PublicURL != "" || c.IncludedEventTypes != nil || c.AdvancedFilter != nil ||
			c.EventDeliverySchema != "" || c.Policy != "" {
			return nil, terminal.Usagef("settings of an event subscription, and no --topic to make it on")
		}
		return &temporary{}, nil
	}
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	t := &temporary{client: client, topic: c.Topic, name: c.Name}
	if t.name == "" {
		t.name = "listen-" + uuid.NewString()[:8]
	}
	endpoint := c.PublicURL
	if endpoint == "" {
		endpoint = base + "/"
	}
	wanted := management.SettingFlags{
		Endpoint: endpoint, IncludedEventTypes: c.IncludedEventTypes, AdvancedFilter: c.AdvancedFilter,
		EventDeliverySchema: c.EventDeliverySchema, Policy: c.Policy,
	}
	settings, err := wanted.Settings()
	if err != nil {
		return nil, err
	}
	settings["expirationTimeUtc"], settings["labels"] = inAnHour(), []string{"postrider listen"}
	if err := client.Call(ctx, http.MethodPut, rest.SubscriptionURL(t.topic, t.name), settings, nil, "If-None-Match",
		"*"); err != nil {
		if rest.IsInvalid(err, "endpointUrl") {
			return nil,
				fmt.Errorf("%w\nif the service may not call this machine, start it with --allow-cidr and this machine's "+
					"address, as postrider dev does", err)
		}
		return nil, err
	}
	fmt.Fprintf(notes, "Event subscription %s of topic %s delivers here; it is deleted at the end.\n", t.name, t.topic)
	return t, nil
}

func inAnHour() string { return time.Now().Add(temporaryLife).UTC().Format(time.RFC3339) }

// keep waits until ctx ends or nothing can be received any more, and puts the event subscription's end off meanwhile.
func (t *temporary) keep(ctx context.Context, served <-chan error) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return err
		case <-tick.C:
		}
		if t.client == nil {
			continue
		}
		if err := t.client.Call(ctx, http.MethodPatch, rest.SubscriptionURL(t.topic, t.name),
			rest.Object{"expirationTimeUtc": inAnHour()}, nil); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "postrider: the end of event subscription %s could not be put off: %s\n", t.name,
				terminal.PlainLines(err.Error()))
		}
	}
}

// remove deletes it, and waits a moment for the event that says so: nobody would be there to take it.
func (t *temporary) remove(notes io.Writer, farewell <-chan struct{}) {
	if t.client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	err := t.client.Call(ctx, http.MethodDelete, rest.SubscriptionURL(t.topic, t.name), nil, nil)
	if err != nil && !rest.IsStatus(err, http.StatusNotFound) {
		fmt.Fprintf(os.Stderr, "postrider: event subscription %s of topic %s is still there: %s\n", t.name, t.topic,
			terminal.PlainLines(err.Error()))
		return
	}
	fmt.Fprintf(notes, "Event subscription %s was deleted.\n", t.name)
	select {
	case <-farewell:
	case <-time.After(listenGrace):
	}
}
