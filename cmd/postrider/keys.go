package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"postrider/internal/catalog"
	"postrider/internal/cli/rest"
	"postrider/internal/postgres"
	"postrider/internal/terminal"
)

// encryptionFlags are the flags of verbs that encrypt or decrypt secrets.
type encryptionFlags struct {
	EncryptionKey          string   `help:"Key that encrypts endpoints, custom headers and access keys in the database: base64 of 32 random bytes." env:"POSTRIDER_ENCRYPTION_KEY" placeholder:"KEY"`
	PreviousEncryptionKeys []string `help:"Earlier keys, which only decrypt, during a rotation." env:"POSTRIDER_PREVIOUS_ENCRYPTION_KEYS" placeholder:"KEY"`
}

func (f encryptionFlags) sealer() (*postgres.Sealer, error) {
	if f.EncryptionKey == "" {
		return nil, terminal.Usagef("no encryption key: set POSTRIDER_ENCRYPTION_KEY to base64 of 32 random bytes and keep "+
			"it safe; %s", createSecret)
	}
	key, err := postgres.ParseKey(f.EncryptionKey)
	if err != nil {
		return nil, terminal.Usagef("POSTRIDER_ENCRYPTION_KEY: %v", err)
	}
	also := make([][]byte, len(f.PreviousEncryptionKeys))
	for i, text := range f.PreviousEncryptionKeys {
		if also[i], err = postgres.ParseKey(strings.TrimSpace(text)); err != nil {
			return nil, terminal.Usagef("POSTRIDER_PREVIOUS_ENCRYPTION_KEYS: number %d: %v", i+1, err)
		}
	}
	return postgres.NewSealer(key, also...)
}

type keysCmd struct {
	Status keysStatusCmd `cmd:"" help:"Show which encryption keys are in use, which node knows which, and the next step of a rotation."`
	Rotate keysRotateCmd `cmd:"" help:"Encrypt all secrets in the database with the current key, and retire earlier keys."`
}

// keysFlags are the flags of the verbs of keys.
type keysFlags struct {
	databaseFlags
	encryptionFlags
	logFlags
	terminal.OutputFlag
}

type keysRotateCmd struct{ keysFlags }

func (keysRotateCmd) Help() string {
	return `The service can stay running. Restart each node with the new key as POSTRIDER_ENCRYPTION_KEY first; see
docs/operate/configure.md.

Example:
  export POSTRIDER_ENCRYPTION_KEY=$NEW POSTRIDER_PREVIOUS_ENCRYPTION_KEYS=$OLD
  postrider keys rotate --database-url postgres://postrider:secret@db:5432/postrider`
}

func (c *keysRotateCmd) Run(ctx context.Context, std terminal.Streams) error {
	if err := cmp.Or(c.require(), c.checkKey()); err != nil {
		return err
	}
	sealer, err := c.sealer()
	if err != nil {
		return err
	}
	pool, err := openDatabase(ctx, c.databaseFlags, 2, c.logger(std.Err))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := requireWritable(ctx, pool); err != nil {
		return err
	}
	if err := catalog.CheckKey(ctx, pool, sealer); err != nil {
		return err
	}
	sealed, line, all := map[string]int{}, terminal.NewProgressLine(std.Err), 0
	retired, err := catalog.RotateKeys(ctx, pool, sealer, func(table string, rows int) {
		sealed[table], all = sealed[table]+rows, all+rows
		line.Show(func() string { return terminal.Plural(all, "row") + " encrypted" })
	})
	line.End()
	if err != nil {
		return err
	}
	topics, subscriptions, handshakes := sealed["topics"], sealed["event_subscriptions"], sealed["handshakes"]
	result := map[string]any{
		"keyId": sealer.KeyID(), "retired": append([]string{}, retired...),
		"sealed": map[string]int{"topics": topics, "eventSubscriptions": subscriptions, "handshakes": handshakes},
	}
	earlier := "No earlier key was in use."
	if len(retired) > 0 {
		earlier = fmt.Sprintf("Retired: %s. You can unset POSTRIDER_PREVIOUS_ENCRYPTION_KEYS.", strings.Join(retired, ", "))
	}
	return c.PrintOne(std.Out, result, fmt.Sprintf("Encrypted with key %s: %s, %s, %s.\n%s", sealer.KeyID(),
		terminal.Plural(topics, "topic"), terminal.Plural(subscriptions, "event subscription"),
		terminal.Plural(handshakes, "handshake"), earlier))
}

const (
	// minAdminToken is the minimum length of an admin token, in characters: the form for the first admin has no lockout.
	minAdminToken = 32
	// minDifferent distinguishes a random secret from a placeholder: of 25 million secrets of 32 random hexadecimal
	// digits, one has fewer different digits.
	minDifferent = 8

	createSecret = "create one with: openssl rand -base64 32"
)

// knownSecrets are published with this program. devAccessKey is also base64 of devEncryptionKey.
var knownSecrets = []string{rest.DevAdminToken, devAccessKey, devEncryptionKey}

// checkAdminToken rejects a token that can be guessed; "" is none. No error contains it.
func checkAdminToken(token, encryptionKey string) error {
	const name = "--admin-token (POSTRIDER_ADMIN_TOKEN)"
	switch length := utf8.RuneCountInString(token); {
	case token == "":
		return nil
	case slices.Contains(knownSecrets, token):
		return terminal.Usagef("%s is a secret of postrider dev, which is published: %s", name, createSecret)
	case length < minAdminToken:
		return terminal.Usagef("%s has %d characters: it must have at least %d; %s", name, length, minAdminToken,
			createSecret)
	case different([]byte(token)) < minDifferent:
		return terminal.Usagef("%s has %d different characters: it must be random; %s", name, different([]byte(token)),
			createSecret)
	case token == encryptionKey:
		return terminal.Usagef("%s is the encryption key: use two secrets; %s", name, createSecret)
	}
	return nil
}

// checkKey rejects a current encryption key that can be guessed. Previous keys are not checked.
func (f encryptionFlags) checkKey() error {
	const name = "--encryption-key (POSTRIDER_ENCRYPTION_KEY)"
	key, err := postgres.ParseKey(f.EncryptionKey)
	switch {
	case err != nil:
		return nil // sealer reports it
	case string(key) == devEncryptionKey:
		return terminal.Usagef("%s is the key of postrider dev, which is published: %s", name, createSecret)
	case different(key) < minDifferent:
		return terminal.Usagef("%s has %d different bytes: it must be random; %s", name, different(key), createSecret)
	}
	return nil
}

// different counts the different bytes.
func different(text []byte) int { return len(slices.Compact(slices.Sorted(slices.Values(text)))) }
