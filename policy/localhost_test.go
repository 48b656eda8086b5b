package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

func TestIsLocalHost(t *testing.T) {
	t.Parallel()
	for host, local := range map[string]bool{
		"localhost": true, "LocalHost:8080": true, "127.0.0.1": true, "127.0.0.1:80": true, "[::1]": true, "[::1]:8080": true,
		"192.168.1.7": true,
		"example.com": false, "localhost.example.com": false, "127.0.0.1.example.com:80": false, "localhost.": false,
		"": false,
	} {
		require.Equal(t, local, policy.IsLocalHost(host), host)
	}
}
