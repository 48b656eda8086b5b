package main

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTLSFilesThatDoNotFit(t *testing.T) {
	t.Parallel()
	one, other := devTLS{dir: filepath.Join(t.TempDir(), "tls")}, devTLS{dir: filepath.Join(t.TempDir(), "tls")}
	for _, d := range []devTLS{one, other} {
		_, err := d.prepare(time.Now())
		require.NoError(t, err)
	}
	missing := filepath.Join(t.TempDir(), "missing.pem")
	cert, key := one.files().TLSCert, one.files().TLSKey
	for _, row := range []struct {
		files tlsFlags
		says  string
	}{
		{tlsFlags{cert, ""}, "--tls-cert without --tls-key"},
		{tlsFlags{"", key}, "--tls-key without --tls-cert"},
		{tlsFlags{missing, key}, "--tls-cert: open " + missing},
		{tlsFlags{cert, missing}, "--tls-key: open " + missing},
		{
			tlsFlags{cert, other.files().TLSKey},
			"--tls-key " + other.files().TLSKey + ": tls: private key does not match public key",
		},
		{
			tlsFlags{key, cert},
			"--tls-cert " + key + " and --tls-key " + cert + ": tls: failed to find certificate PEM data",
		},
	} {
		_, err := row.files.open(slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, row.says)
	}
}
