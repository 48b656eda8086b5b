package main

import (
	"net"
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
	token, key := devSecrets(true)
	require.Equal(t, []string{rest.DevAdminToken, devAccessKey}, []string{token, key})
	token, key = devSecrets(false)
	require.NotEqual(t, rest.DevAdminToken, token)
	require.NotEqual(t, devAccessKey, key)
	require.GreaterOrEqual(t, len(token), 43)
	require.GreaterOrEqual(t, len(key), 43)
	again, _ := devSecrets(false)
	require.NotEqual(t, token, again)
	require.Equal(t, "127.0.0.1:7480", local.Reachable(&net.TCPAddr{IP: net.ParseIP("0.0.0.0"), Port: 7480}),
		"an address that can be called")
}

func TestDevRejectsATimeScale(t *testing.T) {
	t.Parallel()
	for _, scale := range []string{"0", "-1", "86401"} {
		rejected := postrider(t, nil, "dev", "--time-scale="+scale)
		require.Equal(t, 2, rejected.code)
		require.Contains(t, rejected.stderr, "--time-scale "+scale+": must be 1 to 86400")
	}
}
