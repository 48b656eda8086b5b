package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"postrider/server"
)

// post asks for one of the actions of an event subscription.
func (c *oneRemoteSubscription) post(ctx context.Context, action string, body, into any) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return client.call(ctx, http.MethodPost, subscriptionURL(c.Topic, c.Subscription)+"/"+action, body, into)
}

type probeCmd struct {
	oneRemoteSubscription
	outputFlag
}

// Help is shown by subscription probe --help.
func (probeCmd) Help() string {
	return `Its success ends the probation, its failure begins the next hold. Where the policy rests the endpoint as a whole, it is for all event
subscriptions that share it. subscription release ends a probation without one.

Example:
  postrider subscription probe orders billing`
}

// Run executes subscription probe.
func (c *probeCmd) Run(ctx context.Context) error {
	var now object
	if err := c.post(ctx, "probe", nil, &now); err != nil {
		return err
	}
	return c.print(now, func(w io.Writer) {
		fmt.Fprintf(w, "Event subscription %s of topic %s: one delivery is let through now.\n", c.Subscription, c.Topic)
	})
}

type validateCmd struct {
	oneRemoteSubscription
	outputFlag
}

// Help is shown by subscription validate --help.
func (validateCmd) Help() string {
	return `At any time; after a failed validation it is the way on. An endpoint that fails is refused, and nothing is changed.

Example:
  postrider subscription validate orders billing`
}

// Run executes subscription validate.
func (c *validateCmd) Run(ctx context.Context) error {
	var now object
	err := waiting("the endpoint answers its validation handshake", func() error { return c.post(ctx, "validate", nil, &now) })
	if err != nil {
		return err
	}
	return c.print(now, func(w io.Writer) { printSubscription(w, now) })
}

type testDeliveryCmd struct {
	oneRemoteSubscription
	outputFlag
}

// Help is shown by subscription test-delivery --help.
func (testDeliveryCmd) Help() string {
	return `An event of type postrider.TestEvent is stored and owed to this event subscription, whatever its filter says, and to no other. delivery show
tells what the endpoint answers.

Example:
  postrider subscription test-delivery orders billing`
}

// Run executes subscription test-delivery.
func (c *testDeliveryCmd) Run(ctx context.Context) error {
	var sent object
	if err := c.post(ctx, "testDelivery", nil, &sent); err != nil {
		return err
	}
	return c.print(sent, func(w io.Writer) {
		fmt.Fprintf(w, "A sample event is delivery %s; see postrider delivery show %[1]s.\n", textAt(sent, "deliveryId"))
	})
}

type revealCmd struct {
	oneRemoteSubscription
	outputFlag
}

// Help is shown by subscription reveal --help.
func (revealCmd) Help() string {
	return "That they were shown is in the audit before they are. It takes an administrator's key.\n\nExample:\n  postrider subscription reveal orders billing -o json"
}

// Run executes subscription reveal.
func (c *revealCmd) Run(ctx context.Context) error {
	var endpoint, headers object
	if err := c.post(ctx, "getFullUrl", nil, &endpoint); err != nil {
		return err
	}
	if err := c.post(ctx, "getDeliveryAttributes", nil, &headers); err != nil {
		return err
	}
	shown := object{"endpointUrl": endpoint["endpointUrl"], "deliveryAttributeMappings": headers["value"]}
	return c.print(shown, func(w io.Writer) {
		fmt.Fprintf(w, "endpoint\t%s\n", textAt(shown, "endpointUrl"))
		for _, header := range objects(shown, "deliveryAttributeMappings") {
			value := textAt(header, "properties.value")
			if path := textAt(header, "properties.sourceField"); path != "-" {
				value = "of each event: " + path
			}
			fmt.Fprintf(w, "header %s\t%s\n", textAt(header, "name"), value)
		}
	})
}

// objects are those of a list inside an object.
func objects(o object, path string) (list []object) {
	values, _ := valueAt(o, path).([]any)
	for _, value := range values {
		if one, ok := value.(object); ok {
			list = append(list, one)
		}
	}
	return list
}

type signingSecretsCmd struct {
	oneRemoteSubscription
	outputFlag
	Rotate             bool   `help:"Replace the newest; the one so far goes on signing beside it for a while."`
	PreviousValidHours *int   `name:"previous-valid-for-hours" help:"With --rotate: for so long, 0 to 168 (default 24). 0 is for a secret that has leaked." placeholder:"HOURS"`
	SecretFile         string `help:"With --rotate: the new secret is in this file, whsec_ and base64; - reads it from standard input (default: the service makes one)." placeholder:"FILE"`
}

// Help is shown by subscription signing-secrets --help.
func (signingSecretsCmd) Help() string {
	return `They are shown to an administrator's key alone, and that they were is in the audit. To replace one without an outage: --rotate, and give the new
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
	var secrets object
	if err := c.post(ctx, action, body, &secrets); err != nil {
		return err
	}
	return c.print(secrets, func(w io.Writer) {
		fmt.Fprintln(w, "SECRET\tSINCE\tSIGNS UNTIL")
		for _, s := range objects(secrets, "value") {
			fmt.Fprintf(w, "%s\t%s\t%s\n", textAt(s, "secret"), textAt(s, "createdAt"), textAt(s, "validUntil"))
		}
	})
}

// asked is the action with what it takes.
func (c *signingSecretsCmd) asked() (action string, body any, err error) {
	if !c.Rotate {
		if c.PreviousValidHours != nil || c.SecretFile != "" {
			return "", nil, usagef("--previous-valid-for-hours and --secret-file are for --rotate")
		}
		return "getSigningSecrets", nil, nil
	}
	settings := object{}
	setGiven(settings, "previousValidForHours", c.PreviousValidHours)
	if c.SecretFile != "" {
		secret, err := readFileOrInput(c.SecretFile)
		if err != nil {
			return "", nil, err
		}
		settings["secret"] = strings.TrimSpace(string(secret))
	}
	return "rotateSigningSecret", settings, nil
}

type topicTestFilterCmd struct {
	oneTopic
	outputFlag
	Filter string `required:"" help:"The filter is in this file, JSON as filter of an event subscription takes it; - reads it from standard input." placeholder:"FILE"`
	Event  string `help:"Test with the one event in this file, in the topic's input schema." xor:"events" placeholder:"FILE"`
	Last   *int   `help:"Test with as many of the topic's last events: 1 to 50 (default 50)." xor:"events" placeholder:"N"`
}

// Help is shown by topic test-filter --help.
func (topicTestFilterCmd) Help() string {
	return `Nothing is stored or delivered. subscription test-filter tells it of an event subscription's own filter.

Examples:
  echo '{"includedEventTypes":["Shop.OrderPlaced"]}' | postrider topic test-filter orders --filter -
  postrider topic test-filter orders --filter filter.json --event order.json -o json`
}

// Run executes topic test-filter.
func (c *topicTestFilterCmd) Run(ctx context.Context) error {
	test, err := c.test()
	if err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	var tested server.FilterResults
	if err := client.call(ctx, http.MethodPost, topicURL(c.Topic)+"/testFilter", test, &tested); err != nil {
		return err
	}
	return c.print(tested, func(w io.Writer) { printTested(w, nil, tested) })
}

// test is what the request brings, as the files have it.
func (c *topicTestFilterCmd) test() (object, error) {
	if c.Event == "-" && c.Filter == "-" {
		return nil, usagef("--event and --filter cannot both be read from standard input")
	}
	test := object{}
	setGiven(test, "last", c.Last)
	for name, file := range map[string]string{"filter": c.Filter, "event": c.Event} {
		if file == "" {
			continue
		}
		text, err := readFileOrInput(file)
		if err != nil {
			return nil, err
		}
		if !json.Valid(text) {
			return nil, usagef("%s: not one JSON document", file)
		}
		test[name] = json.RawMessage(text)
	}
	return test, nil
}
