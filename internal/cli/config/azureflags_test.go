package config

import (
	"context"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// azureCreates and azureUpdates are the flags of az eventgrid event-subscription create and update, their other
// spellings included. Source: Microsoft, Azure CLI reference, 2026-05.
const (
	azureCreates = `--name -n --source-resource-id --advanced-filter --azure-active-directory-application-id-or-uri ` +
		`--azure-active-directory-tenant-id --deadletter-endpoint
		--deadletter-identity --deadletter-identity-endpoint --delivery-attribute-mapping --delivery-identity ` +
		`--delivery-identity-endpoint --delivery-identity-endpoint-type
		--enable-advanced-filtering-on-arrays --enable-af-arr --endpoint --endpoint-type --event-delivery-schema ` +
		`--event-ttl --expiration-date --included-event-types --labels
		--max-delivery-attempts --max-events-per-batch --preferred-batch-size-in-kilobytes --pref-batch-size-kb ` +
		`--storage-queue-msg-ttl --qttl --subject-begins-with
		--subject-case-sensitive --subject-ends-with --resource-group -g --topic-name --system-topic-name --query`
	azureUpdates = azureCreates + " --add --set --remove --ids"
)

// azureValues are values that the flags take, where "1" is none.
var azureValues = map[string]string{
	"--advanced-filter": "data.total NumberGreaterThan 100", "--delivery-attribute-mapping": "X-Team static audit",
	"--expiration-date": "2030-01-31",
	"--endpoint-type":   "webhook", "--enable-advanced-filtering-on-arrays": "true", "--enable-af-arr": "true",
	"--subject-case-sensitive": "true",
}

// Each flag of the Azure CLI has the same effect, or names its replacement.
func TestEveryFlagOfTheAzureCLI(t *testing.T) {
	t.Parallel()
	for verb, flags := range map[string]string{"create": azureCreates, "update": azureUpdates} {
		for _, flag := range strings.Fields(flags) {
			value := azureValues[flag]
			if value == "" {
				value = "1"
			}
			c := struct {
				Subscription SubscriptionCmd `cmd:""`
			}{NewSubscriptionCmd()}
			parser, err := kong.New(&c, kong.BindTo(t.Context(), (*context.Context)(nil)))
			require.NoError(t, err)
			_, err = parser.Parse([]string{"subscription", verb, "orders", "billing", flag, value})
			if err != nil {
				require.ErrorContains(t, err, "a flag of the Azure CLI; here, ", flag)
				continue
			}
			given := &c.Subscription.Create.SettingFlags
			if verb == "update" {
				given = &c.Subscription.Update.SettingFlags
			}
			settings, err := given.Settings(nil)
			require.NoError(t, err, flag)
			if flag != "--endpoint-type" {
				require.Len(t, settings, 1, flag)
			}
		}
	}
}
