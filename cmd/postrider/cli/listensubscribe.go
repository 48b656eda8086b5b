package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

const (
	// temporaryLife is how long the event subscription outlives a program that was killed.
	temporaryLife = time.Hour
	// renewEvery is how often it is extended.
	renewEvery = 15 * time.Minute
	// removeWithin is how long the end of the program waits.
	removeWithin = 5 * time.Second
)

// temporary is an event subscription that ends with this program.
type temporary struct {
	client    *rest.Client
	name, url string
}

// subscribe creates the event subscription. The listener must be able to answer the handshake.
func (c *ListenCmd) subscribe(ctx context.Context, base string) (*temporary, error) {
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	t := &temporary{client: client, name: cmp.Or(c.Name, "listen-"+uuid.NewString()[:8])}
	t.url = rest.SubscriptionURL(c.Topic, t.name)
	settings, err := c.Settings()
	if err != nil {
		return nil, err
	}
	settings["endpointUrl"] = cmp.Or(c.PublicURL, base+"/")
	settings["expirationTimeUtc"], settings["labels"] = inAnHour(), []string{"postrider listen"}
	err = client.Call(ctx, http.MethodPut, t.url, settings, nil, "If-None-Match", "*")
	if rest.IsInvalid(err, "endpointUrl") {
		err = fmt.Errorf("%w\nif the service may not call this machine, start it with --allow-cidr and this machine's "+
			"address, as postrider dev does", err)
	}
	return t, err
}

func inAnHour() string { return time.Now().Add(temporaryLife).UTC().Format(time.RFC3339) }

// keep waits until ctx ends or the listener fails, and extends the event subscription, if there is one.
func (t *temporary) keep(ctx context.Context, served <-chan error) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return fmt.Errorf("receive events: %w", err)
		case <-tick.C:
		}
		if t == nil {
			continue
		}
		extended := rest.Object{"expirationTimeUtc": inAnHour()}
		if err := t.client.Call(ctx, http.MethodPatch, t.url, extended, nil); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "postrider: event subscription %s could not be extended: %s\n", t.name,
				terminal.PlainLines(err.Error()))
		}
	}
}

// remove deletes the event subscription, and waits a moment for the event that reports it.
func (t *temporary) remove(notes io.Writer, farewell <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	err := t.client.Call(ctx, http.MethodDelete, t.url, nil, nil)
	if err != nil && !rest.IsStatus(err, http.StatusNotFound) {
		fmt.Fprintf(os.Stderr, "postrider: event subscription %s was not deleted: %s\n", t.name,
			terminal.PlainLines(err.Error()))
		return
	}
	fmt.Fprintf(notes, "Event subscription %s was deleted.\n", t.name)
	select {
	case <-farewell:
	case <-time.After(listenGrace):
	}
}
