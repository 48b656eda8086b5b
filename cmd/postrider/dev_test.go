package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
	"postrider/internal/local"
)

// If other machines can connect to the port, the secrets are not those of the documentation.
func TestDevOnAnOpenAddressHasRandomSecrets(t *testing.T) {
	t.Parallel()
	for address, local := range map[string]bool{
		"127.0.0.1": true, "::1": true, "127.1.2.3": true, "0.0.0.0": false, "::": false, "192.0.2.1": false,
	} {
		require.Equal(t, local, isLoopback(&net.TCPAddr{IP: net.ParseIP(address)}), address)
	}
	token, key := (&devCmd{}).secrets(true)
	require.Equal(t, []string{rest.DevAdminToken, devAccessKey}, []string{token, key})
	token, key = (&devCmd{}).secrets(false)
	require.NotEqual(t, rest.DevAdminToken, token)
	require.NotEqual(t, devAccessKey, key)
	require.GreaterOrEqual(t, len(token), 43)
	require.GreaterOrEqual(t, len(key), 43)
	again, _ := (&devCmd{}).secrets(false)
	require.NotEqual(t, token, again)
	chosen := &devCmd{AdminToken: "token", TopicKey: "a2V5"}
	for _, local := range []bool{true, false} {
		token, key = chosen.secrets(local)
		require.Equal(t, []string{"token", "a2V5"}, []string{token, key})
	}
	require.Equal(t, "127.0.0.1:7480", local.Reachable(&net.TCPAddr{IP: net.ParseIP("0.0.0.0"), Port: 7480}),
		"an address that can be called")
}

func TestDevRejectsOptions(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	wrong := filepath.Join(folder, "wrong.json")
	text := `{"topics":[{"name":"orders","port":60101,"inputSchema":"AvroSchema"}]}`
	require.NoError(t, os.WriteFile(wrong, []byte(text), 0o600))
	for _, row := range []struct{ says, args string }{
		{"dev start: the only action is reset", "start"},
		{"--topic-key: must be the base64 of 16 bytes or more", "--topic-key=secret"},
		{"--admin-token: must be printable ASCII without blanks", "--admin-token=ä"},
		{"--admin-token is the topic key", "--admin-token=" + devAccessKey + " --topic-key=" + devAccessKey},
		{`"private": must be an address range`, "--allow-cidr=private"},
		{"no such file", "-f " + filepath.Join(folder, "none.yaml")},
		{
			wrong + `: document 1: topics[0].inputSchema: must be EventGridSchema or CloudEventV1_0, not "AvroSchema"`,
			"-f " + wrong,
		},
		{`--tls-name "*.a": must be a host name`, "--tls-name=*.a"},
		{"--time-scale 86401: must be 1 to 86400", "--time-scale=86401"},
	} {
		rejected := postrider(t, nil, append([]string{"dev"}, strings.Fields(row.args)...)...)
		require.Equal(t, 2, rejected.code, row.args)
		require.Contains(t, rejected.stderr, row.says)
	}
}
