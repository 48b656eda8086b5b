package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAzureCommandLinesAreHelped(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ flags, says string }{
		{"--name billing --source-resource-id /subscriptions/1", "the topic and the event subscription are the verb's two " +
			"arguments"},
		{"orders billing --source-resource-id /subscriptions/1", "the topic is the verb's first argument"},
		{"orders billing --resource-id /subscriptions/1", "--resource-id: a flag of the Azure CLI; here, the topic is the " +
			"verb's first argument"},
		{"orders billing --delivery-identity systemassigned", "--oauth2-token-url"},
		{"orders billing --included-event-types A B", "--included-event-types needs its values in one argument: " +
			"--included-event-types Shop.OrderPlaced,Shop.OrderPaid"},
		{"orders billing --labels a b --endpoint https://x", "--labels needs its values in one argument"},
		{"orders billing --advanced-filter data.n NumberIn 1", "'data.total NumberGreaterThan 100'"},
	} {
		rejected := postrider(t, append([]string{"subscription", "create"}, strings.Fields(row.flags)...)...)
		require.Equal(t, 2, rejected.code, row.flags)
		require.Contains(t, rejected.stderr, row.says)
		require.Empty(t, rejected.stdout, "what a pipe gets is no usage")
	}
	require.NotContains(t, postrider(t, "subscription", "create", "--help").stdout, "--source-resource-id")
}
