package config

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

type signingSecretsCmd struct {
	oneSubscription
	Rotate             bool   `help:"Replace the newest secret; the previous one also signs for a while."`
	PreviousValidHours *int   `api:"previousValidForHours" name:"previous-valid-for-hours" help:"With --rotate: hours for which the previous secret still signs, 0 to 168 (default 24). Use 0 for a secret that has leaked." placeholder:"HOURS"`
	SecretFile         string `help:"With --rotate: file with the new secret, whsec_ and base64; - reads it from standard input (default: the service creates one)." placeholder:"FILE"`
}

// Help is shown by subscription signing-secrets --help.
func (signingSecretsCmd) Help() string {
	return `Requires an administrator's key. The audit records it. To replace a secret without an outage, use --rotate
and give the new secret to the receiver while both secrets sign; see docs/guides/receive.md#verify-signatures.

Examples:
  postrider subscription signing-secrets orders billing
  postrider subscription signing-secrets orders billing --rotate --previous-valid-for-hours 48`
}

func (c *signingSecretsCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	action, body, err := c.request(std.In)
	if err != nil {
		return err
	}
	return c.Do(ctx, std, client, http.MethodPost, c.Path()+"/"+action, body, func(w io.Writer, secrets rest.Object) {
		fmt.Fprintln(w, "SECRET\tSINCE\tSIGNS UNTIL")
		for _, s := range rest.Objects(secrets, "value") {
			fmt.Fprintf(w, "%s\t%s\t%s\n", rest.TextAt(s, "secret"), rest.TextAt(s, "createdAt"), rest.TextAt(s, "validUntil"))
		}
	})
}

func (c *signingSecretsCmd) request(stdin io.Reader) (action string, body any, err error) {
	if !c.Rotate {
		if c.PreviousValidHours != nil || c.SecretFile != "" {
			return "", nil, terminal.Usagef("--previous-valid-for-hours and --secret-file are for --rotate")
		}
		return "getSigningSecrets", nil, nil
	}
	settings := rest.Given(c)
	if c.SecretFile != "" {
		text, err := terminal.ReadFileOrInput(stdin, c.SecretFile)
		if err != nil {
			return "", nil, err
		}
		settings["secret"] = strings.TrimSpace(string(text))
	}
	return "rotateSigningSecret", settings, nil
}
