package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"postrider/catalog"
	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/postgres"
)

// encryptionFlags are shared by every verb that seals or opens secrets.
type encryptionFlags struct {
	EncryptionKey          string   `help:"Base64 of 32 random bytes; seals endpoints, custom headers and access keys in the database." env:"POSTRIDER_ENCRYPTION_KEY" placeholder:"KEY"`
	PreviousEncryptionKeys []string `help:"Further keys that only open what they have sealed, during a rotation." env:"POSTRIDER_PREVIOUS_ENCRYPTION_KEYS" placeholder:"KEY"`
}

func (f encryptionFlags) sealer() (*postgres.Sealer, error) {
	if f.EncryptionKey == "" {
		return nil, terminal.Usagef("no encryption key: set POSTRIDER_ENCRYPTION_KEY to base64 of 32 random bytes and keep " +
			"it safe; make one with: openssl rand -base64 32")
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
	Rotate keysRotateCmd `cmd:"" help:"Seal everything in the database with the encryption key, and retire the keys before it."`
}

type keysRotateCmd struct {
	databaseFlags
	encryptionFlags
	logFlags
	terminal.OutputFlag
}

// Help is shown by keys rotate --help.
func (keysRotateCmd) Help() string {
	return `The service runs on meanwhile. By then each node must have been restarted with the new key as ` +
		`POSTRIDER_ENCRYPTION_KEY; see docs/operate/configure.md.

Example:
  export POSTRIDER_ENCRYPTION_KEY=$NEW POSTRIDER_PREVIOUS_ENCRYPTION_KEYS=$OLD
  postrider keys rotate --database-url postgres://postrider:secret@db:5432/postrider`
}

// Run executes keys rotate.
func (c *keysRotateCmd) Run(ctx context.Context) error {
	if err := c.require(); err != nil {
		return err
	}
	if err := c.checkKey(); err != nil {
		return err
	}
	sealer, err := c.sealer()
	if err != nil {
		return err
	}
	pool, err := openDatabase(ctx, c.databaseFlags, 2, c.logger())
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := requireSchema(ctx, pool); err != nil {
		return err
	}
	if err := catalog.CheckKey(ctx, pool, sealer); err != nil {
		return err
	}
	sealed, line, all := map[string]int{}, terminal.NewProgressLine(), 0
	retired, err := catalog.RotateKeys(ctx, pool, sealer, func(table string, rows int) {
		sealed[table], all = sealed[table]+rows, all+rows
		line.Show(func() string { return terminal.Plural(all, "row") + " sealed" })
	})
	line.End()
	if err != nil {
		return err
	}
	now := func() (any, error) {
		rows := map[string]int{
			"topics": sealed["topics"], "eventSubscriptions": sealed["event_subscriptions"], "handshakes": sealed["handshakes"],
		}
		return map[string]any{"keyId": sealer.KeyID(), "sealed": rows, "retired": append([]string{}, retired...)}, nil
	}
	return c.Done(now, "%s", describeRotation(sealer.KeyID(), sealed, retired))
}

func describeRotation(key string, sealed map[string]int, retired []string) string {
	text := fmt.Sprintf("Sealed with key %s: %s, %s, %s.\n", key, terminal.Plural(sealed["topics"], "topic"),
		terminal.Plural(sealed["event_subscriptions"], "event subscription"),
		terminal.Plural(sealed["handshakes"], "handshake"))
	if len(retired) == 0 {
		return text + "No other key was in use."
	}
	return text +
		fmt.Sprintf("Retired: %s. POSTRIDER_PREVIOUS_ENCRYPTION_KEYS is needed no longer.", strings.Join(retired, ", "))
}

const (
	// minAdminToken is the least length of an admin token, in characters. Guessing it is hopeless; so the form for the
	// first admin needs no lockout.
	minAdminToken = 32
	// minDifferent tells a random secret from a placeholder: 32 random hexadecimal digits have fewer different ones
	// once in 25 million times.
	minDifferent = 8

	makeSecret = "make one with: openssl rand -base64 32"
)

// knownSecrets are published with this program. devAccessKey is also base64 of devEncryptionKey.
var knownSecrets = []string{rest.DevAdminToken, devAccessKey, devEncryptionKey}

// checkAdminToken rejects a token that can be guessed. No error repeats it.
func checkAdminToken(token, encryptionKey string) error {
	const name = "--admin-token (POSTRIDER_ADMIN_TOKEN)"
	switch length := utf8.RuneCountInString(token); {
	case slices.Contains(knownSecrets, token):
		return terminal.Usagef("%s is a secret of postrider dev, which is published: %s", name, makeSecret)
	case length < minAdminToken:
		return terminal.Usagef("%s has %d characters: it must have at least %d; %s", name, length, minAdminToken, makeSecret)
	case different([]byte(token)) < minDifferent:
		return terminal.Usagef("%s has %d different characters: it must be random; %s", name, different([]byte(token)),
			makeSecret)
	case token == encryptionKey:
		return terminal.Usagef("%s is the encryption key: use two secrets; %s", name, makeSecret)
	default:
		return nil
	}
}

// checkKey rejects an encryption key that can be guessed, as the key that seals. A previous key may be any.
func (f encryptionFlags) checkKey() error {
	const name = "--encryption-key (POSTRIDER_ENCRYPTION_KEY)"
	key, err := postgres.ParseKey(f.EncryptionKey)
	switch {
	case err != nil:
		return nil // sealer reports it
	case string(key) == devEncryptionKey:
		return terminal.Usagef("%s is the key of postrider dev, which is published: %s", name, makeSecret)
	case different(key) < minDifferent:
		return terminal.Usagef("%s has %d different bytes: it must be random; %s", name, different(key), makeSecret)
	default:
		return nil
	}
}

// different counts the different bytes.
func different(text []byte) int {
	sorted := slices.Sorted(slices.Values(text))
	return len(slices.Compact(sorted))
}
