package main

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
)

// Secrets that are short, published or placeholders are rejected. The error names the flag, not the secret.
func TestWeakSecretsAreRejected(t *testing.T) {
	t.Parallel()
	const random, key = "kS8v0w1JrQ2ZbV5n9XcTfLhYdM3uAeGi7oPpRqWsE4U=", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	known := base64.StdEncoding.EncodeToString([]byte(devEncryptionKey))
	for name, row := range map[string]struct{ token, key, want string }{
		"a short token": {
			random[:31], key, "--admin-token (POSTRIDER_ADMIN_TOKEN) has 31 characters: it must have at least 32",
		},
		"dev's token":             {rest.DevAdminToken, key, "a secret of postrider dev"},
		"dev's access key":        {devAccessKey, key, "a secret of postrider dev"},
		"a placeholder":           {strings.Repeat("changeme", 5), key, "has 7 different characters: it must be random"},
		"one secret for both":     {key, key, "is the encryption key: use two secrets"},
		"dev's key":               {random, known, "--encryption-key (POSTRIDER_ENCRYPTION_KEY) is the key of postrider dev"},
		"dev's key without =":     {random, strings.TrimRight(known, "="), "is the key of postrider dev"},
		"dev's access key as key": {random, devAccessKey, "is the key of postrider dev"},
		"zeros":                   {random, strings.Repeat("A", 43) + "=", "has 1 different bytes: it must be random"},
	} {
		err := errors.Join(checkAdminToken(row.token, row.key), encryptionFlags{EncryptionKey: row.key}.checkKey())
		require.ErrorContains(t, err, row.want, name)
		require.ErrorContains(t, err, "openssl rand -base64 32", name)
		require.NotContains(t, err.Error(), row.token)
		require.NotContains(t, err.Error(), row.key)
	}
	require.NoError(t, encryptionFlags{EncryptionKey: key}.checkKey())
	require.NoError(t, checkAdminToken(random, key))
	require.NoError(t, checkAdminToken(newSecret(), key))
	require.NoError(t, checkAdminToken("0f1e2d3c4b5a69788796a5b4c3d2e1f0", key), "openssl rand -hex 16")
}

// serve rejects the secrets of the pages and files of this repository.
func TestServeRejectsSecretsOfTheExamples(t *testing.T) {
	t.Parallel()
	stated := regexp.MustCompile(`(POSTRIDER_ADMIN_TOKEN|POSTRIDER_ENCRYPTION_KEY|--admin-token|--encryption-key)(?:=|: ` +
		`| )["']?([^\s"'` + "`" + `$\\;&|)]+)`)
	files := []string{"../../compose.yaml", "../../.env.example", "../../README.md"}
	for _, folder := range []string{"docs", "deploy"} {
		require.NoError(t, filepath.WalkDir("../../"+folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				files = append(files, path)
			}
			return err
		}))
	}
	secrets := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range stated.FindAllStringSubmatch(string(text), -1) {
			secrets++
			if strings.Contains(found[1], "TOKEN") || strings.Contains(found[1], "token") {
				require.Error(t, checkAdminToken(found[2], ""), "%s: %s", file, found[0])
				continue
			}
			flags := encryptionFlags{EncryptionKey: found[2]}
			_, err := flags.sealer()
			require.True(t, err != nil || flags.checkKey() != nil, "%s: %s", file, found[0])
		}
		require.NotContains(t, string(text), "admin-token-of-the-tests", "the token of e2e")
	}
	require.Positive(t, secrets)
}
