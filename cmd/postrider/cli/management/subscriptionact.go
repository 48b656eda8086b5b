package management

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/alecthomas/kong"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// post calls one of the actions of an event subscription.
func (c *oneSubscription) post(ctx context.Context, action string, body, into any) error {
	return c.Call(ctx, http.MethodPost, c.url()+"/"+action, body, into)
}

// actionCmd is a verb that changes a hold. Its tag has the action of the REST API and what is printed.
type actionCmd struct{ oneSubscription }

// Run executes the verb.
func (c *actionCmd) Run(ctx context.Context, k *kong.Context) error { return c.act(ctx, k, nil) }

func (c *oneSubscription) act(ctx context.Context, k *kong.Context, body any) error {
	tag := k.Selected().Tag
	return c.Act(ctx, c.url()+"/"+tag.Get("action"), body, "Event subscription %s of topic %s: %s.", c.Subscription,
		c.Topic, tag.Get("done"))
}

type pauseCmd struct {
	oneSubscription
	StopTimeToLive *bool `api:"stopTimeToLive" help:"The pause does not count toward the time to live of held events; with --no-stop-time-to-live it does. Without either, this stays as it is." negatable:""`
}

// Run executes subscription pause.
func (c *pauseCmd) Run(ctx context.Context, k *kong.Context) error {
	return c.act(ctx, k, rest.Given(c))
}

type validateCmd struct{ oneSubscription }

// Run executes subscription validate.
func (c *validateCmd) Run(ctx context.Context) error {
	return c.awaited(ctx, http.MethodPost, c.url()+"/validate", nil)
}

type testDeliveryCmd struct{ oneSubscription }

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

type revealCmd struct{ oneSubscription }

// Run executes subscription reveal.
func (c *revealCmd) Run(ctx context.Context) error {
	var endpoint, headers rest.Object
	if err := c.post(ctx, "getFullUrl", nil, &endpoint); err != nil {
		return err
	}
	if err := c.post(ctx, "getDeliveryAttributes", nil, &headers); err != nil {
		return err
	}
	shown := rest.Object{"endpointUrl": endpoint["endpointUrl"], "deliveryAttributeMappings": headers["value"]}
	return c.Print(shown, func(w io.Writer) {
		fmt.Fprintf(w, "endpoint\t%s\n", rest.TextAt(shown, "endpointUrl"))
		for _, header := range rest.Objects(shown, "deliveryAttributeMappings") {
			value := rest.TextAt(header, "properties.value")
			if path := rest.TextAt(header, "properties.sourceField"); path != "-" {
				value = "of each event: " + path
			}
			fmt.Fprintf(w, "header %s\t%s\n", rest.TextAt(header, "name"), value)
		}
	})
}

type signingSecretsCmd struct {
	oneSubscription
	Rotate             bool   `help:"Replace the newest secret; the previous one signs beside it for a while."`
	PreviousValidHours *int   `api:"previousValidForHours" name:"previous-valid-for-hours" help:"With --rotate: hours for which the previous secret still signs, 0 to 168 (default 24). Use 0 for a secret that has leaked." placeholder:"HOURS"`
	SecretFile         string `help:"With --rotate: file with the new secret, whsec_ and base64; - reads it from standard input (default: the service creates one)." placeholder:"FILE"`
}

// Run executes subscription signing-secrets.
func (c *signingSecretsCmd) Run(ctx context.Context) error {
	action, body, err := c.request()
	if err != nil {
		return err
	}
	var secrets rest.Object
	if err := c.post(ctx, action, body, &secrets); err != nil {
		return err
	}
	return c.Print(secrets, func(w io.Writer) {
		fmt.Fprintln(w, "SECRET\tSINCE\tSIGNS UNTIL")
		for _, s := range rest.Objects(secrets, "value") {
			fmt.Fprintf(w, "%s\t%s\t%s\n", rest.TextAt(s, "secret"), rest.TextAt(s, "createdAt"), rest.TextAt(s, "validUntil"))
		}
	})
}

func (c *signingSecretsCmd) request() (action string, body any, err error) {
	if !c.Rotate {
		if c.PreviousValidHours != nil || c.SecretFile != "" {
			return "", nil, terminal.Usagef("--previous-valid-for-hours and --secret-file are for --rotate")
		}
		return "getSigningSecrets", nil, nil
	}
	settings := rest.Given(c)
	if c.SecretFile != "" {
		secret, err := terminal.ReadFileOrInput(c.SecretFile)
		if err != nil {
			return "", nil, err
		}
		settings["secret"] = strings.TrimSpace(string(secret))
	}
	return "rotateSigningSecret", settings, nil
}
