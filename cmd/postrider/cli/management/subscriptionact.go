package management

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// post asks for one of the actions of an event subscription.
func (c *oneSubscription) post(ctx context.Context, action string, body, into any) error {
	return c.Call(ctx, http.MethodPost, rest.SubscriptionURL(c.Topic, c.Subscription)+"/"+action, body, into)
}

type revealCmd struct {
	oneSubscription
}

// Help is shown by subscription reveal --help.
func (revealCmd) Help() string {
	return "That they were shown is in the audit before they are. It takes an administrator's key.\n\nExample:\n  " +
		"postrider subscription reveal orders billing -o json"
}

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
	Rotate             bool   `help:"Replace the newest; the one so far goes on signing beside it for a while."`
	PreviousValidHours *int   `name:"previous-valid-for-hours" help:"With --rotate: for so long, 0 to 168 (default 24). 0 is for a secret that has leaked." placeholder:"HOURS"`
	SecretFile         string `help:"With --rotate: the new secret is in this file, whsec_ and base64; - reads it from standard input (default: the service makes one)." placeholder:"FILE"`
}

// Help is shown by subscription signing-secrets --help.
func (signingSecretsCmd) Help() string {
	return `They are shown to an administrator's key alone, and that they were is in the audit. To replace one without ` +
		`an outage: --rotate, and give the new
one to the receiver while both sign; see docs/signatures.md.

Examples:
  postrider subscription signing-secrets orders billing
  postrider subscription signing-secrets orders billing --rotate --previous-valid-for-hours 48`
}

// Run executes subscription signing-secrets.
func (c *signingSecretsCmd) Run(ctx context.Context) error {
	action, body, err := c.asked()
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

// asked is the action with what it takes.
func (c *signingSecretsCmd) asked() (action string, body any, err error) {
	if !c.Rotate {
		if c.PreviousValidHours != nil || c.SecretFile != "" {
			return "", nil, terminal.Usagef("--previous-valid-for-hours and --secret-file are for --rotate")
		}
		return "getSigningSecrets", nil, nil
	}
	settings := rest.Object{}
	setGiven(settings, "previousValidForHours", c.PreviousValidHours)
	if c.SecretFile != "" {
		secret, err := terminal.ReadFileOrInput(c.SecretFile)
		if err != nil {
			return "", nil, err
		}
		settings["secret"] = strings.TrimSpace(string(secret))
	}
	return "rotateSigningSecret", settings, nil
}
