package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"postrider/internal/access"
	"postrider/internal/terminal"
)

type apikeyCmd struct {
	Create apikeyCreateCmd `cmd:"" help:"Create an API key and print it. It is shown once." detail:"The key is the last line of the output. Programs send it as Authorization: Bearer, and publishers also as aeg-sas-key; see docs/operate/access.md." example:"apikey create ci --scope operate --expires-in-days 90; apikey create shop --scope publish --topic orders; apikey create worker --scope receive --topic orders --subscription worker"`
	List   apikeyListCmd   `cmd:"" help:"List the API keys, including revoked ones." example:"apikey list"`
	Show   apikeyShowCmd   `cmd:"" help:"Show an API key, without its secret." example:"apikey show ci -o json"`
	Revoke apikeyRevokeCmd `cmd:"" help:"Revoke an API key. Every node rejects it within a second." detail:"The key stays in the list, and its name stays taken, for the days of serve --keep-keys-days (default 400). Revoking it again changes nothing." example:"apikey revoke ci"`
}

type apikeyCreateCmd struct {
	accountFlags
	Name          string `arg:"" help:"Name of the key; the audit shows its actor as key:NAME."`
	Scope         string `required:"" enum:"publish,receive,read,operate,admin" help:"Scope: publish (publishing and nothing else), receive (pull delivery and nothing else), read, operate or admin." placeholder:"SCOPE"`
	Topic         string `help:"With scope publish or receive: the only topic to publish to, or to receive from (default: every topic)." placeholder:"TOPIC"`
	Subscription  string `help:"With scope receive and --topic: the only event subscription to receive from (default: every one)." placeholder:"SUBSCRIPTION"`
	Query         string `help:"Whether the key may run SQL queries: on or off (default: on with scope operate and admin)." enum:",on,off" default:"" placeholder:"ON|OFF"`
	ExpiresInDays *int   `help:"Days until the key expires (default: never)." placeholder:"DAYS"`
}

func (c *apikeyCreateCmd) Run(ctx context.Context, std terminal.Streams, a accounts) error {
	spec := access.APIKeySpec{
		Name: c.Name, Scope: access.Scope(c.Scope), Topic: c.Topic, Subscription: c.Subscription,
		ExpiresInDays: c.ExpiresInDays,
	}
	if c.Query != "" {
		spec.Query = new(c.Query == "on")
	}
	secret, key, err := a.CreateAPIKey(ctx, spec)
	if err != nil {
		return err
	}
	key.Key = secret
	return c.Print(std.Out, key, func(w io.Writer) {
		fmt.Fprintf(w, "API key %s was created: %s. It is shown only now:\n%s\n", key.Name, permissions(key), secret)
	})
}

// permissions describes what a key may do.
func permissions(k *access.APIKey) string {
	if k.Scope.Role() != "" {
		return "scope " + string(k.Scope)
	}
	does := terminal.Either(k.Scope == access.ScopePublish, "it publishes to ", "it receives from ")
	if k.Topic == nil {
		return does + "every topic"
	}
	if k.Subscription == nil {
		return does + "topic " + *k.Topic
	}
	return does + "event subscription " + *k.Subscription + " of topic " + *k.Topic
}

type apikeyListCmd struct{ accountFlags }

func (c *apikeyListCmd) Run(ctx context.Context, std terminal.Streams, a accounts) error {
	list, err := a.APIKeys(ctx, "", math.MaxInt32)
	if err != nil {
		return err
	}
	return c.Print(std.Out, list, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tSCOPE\tQUERIES\tTOPIC\tSUBSCRIPTION\tKEY\tSTATE\tEXPIRES\tLAST USED\tCREATED BY")
		for _, k := range list {
			topic := nameOr(terminal.Either(k.Scope.Role() == "", "every", "-"), k.Topic)
			subscription := nameOr(terminal.Either(k.Scope == access.ScopeReceive, "every", "-"), k.Subscription)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s…\t%s\t%s\t%s\t%s\n", k.Name, k.Scope, onOff(k.Query), topic, subscription,
				k.Hint, k.State, timeOr("never", k.ExpiresAt), timeOr("never", k.LastUsedAt), k.CreatedBy)
		}
	})
}

func nameOr(otherwise string, name *string) string {
	if name == nil {
		return otherwise
	}
	return *name
}

func timeOr(otherwise string, t *time.Time) string {
	if t == nil {
		return otherwise
	}
	return t.UTC().Format(time.RFC3339)
}

// oneKey has the flags of verbs about one API key.
type oneKey struct {
	accountFlags
	Name string `arg:"" help:"Name of the key."`
}

type apikeyShowCmd struct{ oneKey }

func (c *apikeyShowCmd) Run(ctx context.Context, std terminal.Streams, a accounts) error {
	k, err := a.APIKey(ctx, c.Name)
	if err != nil {
		return err
	}
	return c.Print(std.Out, k, func(w io.Writer) {
		terminal.PrintNamed(w, "name", k.Name, "permissions", permissions(k), "queries", onOff(k.Query), "key", k.Hint+"…",
			"state", k.State,
			"created", k.CreatedAt, "created by", k.CreatedBy, "expires", timeOr("never", k.ExpiresAt),
			"last used", timeOr("never", k.LastUsedAt), "revoked", timeOr("-", k.RevokedAt))
	})
}

type apikeyRevokeCmd struct{ oneKey }

func (c *apikeyRevokeCmd) Run(ctx context.Context, std terminal.Streams, a accounts) error {
	k, err := a.RevokeAPIKey(ctx, c.Name)
	if err != nil {
		return err
	}
	return c.Done(std.Out, func() (any, error) { return k, nil }, "API key %s was revoked at %s.", k.Name,
		timeOr("", k.RevokedAt))
}
