package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"postrider/internal/access"
	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

type apikeyCmd struct {
	Create apikeyCreateCmd               `cmd:"" help:"Create an API key and print it. It is shown once." detail:"The key is the last line of the output. Programs send it as Authorization: Bearer, and publishers also as aeg-sas-key; see docs/operate/access.md." example:"apikey create ci --scope operate --expires-in-days 90; apikey create shop --scope publish --topic orders; apikey create worker --scope receive --topic orders --subscription worker"`
	List   accountListCmd[access.APIKey] `cmd:"" help:"List the API keys, including revoked ones." example:"apikey list"`
	Show   accountShowCmd[access.APIKey] `cmd:"" help:"Show an API key, without its secret." example:"apikey show ci -o json"`
	Revoke apikeyRevokeCmd               `cmd:"" help:"Revoke an API key. Every node rejects it within a second." detail:"The key stays in the list, and its name stays taken, for the days of serve --keep-keys-days (default 400). Revoking it again changes nothing." example:"apikey revoke ci"`
}

type apikeyCreateCmd struct {
	accountFlags
	Name          string `api:"name" arg:"" help:"Name of the key; the audit shows its actor as key:NAME."`
	Scope         string `api:"scope" required:"" enum:"publish,receive,read,operate,admin" help:"Scope: publish (publishing and nothing else), receive (pull delivery and nothing else), read, operate or admin." placeholder:"SCOPE"`
	Topic         string `api:"topic" help:"With scope publish or receive: the only topic to publish to, or to receive from (default: every topic)." placeholder:"TOPIC"`
	Subscription  string `api:"subscription" help:"With scope receive and --topic: the only event subscription to receive from (default: every one)." placeholder:"SUBSCRIPTION"`
	Query         string `help:"Whether the key may run SQL queries: on or off (default: on with scope operate and admin)." enum:",on,off" default:"" placeholder:"ON|OFF"`
	ExpiresInDays *int   `api:"expiresInDays" help:"Days until the key expires (default: never)." placeholder:"DAYS"`
}

func (c *apikeyCreateCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	spec := rest.Given(c)
	if c.Query != "" {
		spec["query"] = c.Query == "on"
	}
	return c.Do(ctx, std, client, http.MethodPost, apiKeysPath, spec, func(w io.Writer, key rest.Object) {
		fmt.Fprintf(w, "API key %s was created: %s. It is shown only now:\n%s\n", c.Name, permissions(key), key["key"])
	})
}

// permissions describes what a key may do.
func permissions(k rest.Object) string {
	scope, topic := access.Scope(rest.TextAt(k, "scope")), rest.TextAt(k, "topic")
	if scope.Role() != "" {
		return "scope " + string(scope)
	}
	does := terminal.Either(scope == access.ScopePublish, "it publishes to ", "it receives from ")
	if k["topic"] == nil {
		return does + "every topic"
	}
	if k["subscription"] == nil {
		return does + "topic " + topic
	}
	return does + "event subscription " + rest.TextAt(k, "subscription") + " of topic " + topic
}

type apikeyRevokeCmd struct{ oneAccount }

func (c *apikeyRevokeCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	path := rest.ItemURL(apiKeysPath, c.Name)
	return c.Do(ctx, std, client, http.MethodDelete, path, nil, func(w io.Writer, key rest.Object) {
		fmt.Fprintf(w, "API key %s was revoked at %s.\n", c.Name, rest.Column{Path: "revokedAt"}.Cell(key))
	})
}
