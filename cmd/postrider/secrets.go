package main

import (
	"slices"
	"unicode/utf8"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/postgres"
)

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
