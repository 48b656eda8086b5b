package config

import (
	"context"
	"fmt"
	"io"
	"strings"

	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

// readSecret reads a signing secret from a file, or from standard input for -.
func readSecret(stdin io.Reader, file string) (string, error) {
	text, err := terminal.ReadFileOrInput(stdin, file)
	return strings.TrimSpace(string(text)), err
}

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

func (c *signingSecretsCmd) Run(ctx context.Context, std terminal.Streams) error {
	action, body, err := c.request(std.In)
	if err != nil {
		return err
	}
	var secrets rest.Object
	if err := c.post(ctx, action, body, &secrets); err != nil {
		return err
	}
	return c.Print(std.Out, secrets, func(w io.Writer) {
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
		if settings["secret"], err = readSecret(stdin, c.SecretFile); err != nil {
			return "", nil, err
		}
	}
	return "rotateSigningSecret", settings, nil
}
