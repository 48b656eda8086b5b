package config

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog/spec"
	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

// settingsOf parses the flags of a table.
func settingsOf(t *testing.T, table []spec.Setting, args ...string) (rest.Object, error) {
	t.Helper()
	flags := newSettingFlags(table)
	parser, err := kong.New(&flags)
	require.NoError(t, err)
	if _, err := parser.Parse(args); err != nil {
		return nil, err
	}
	return flags.Settings(nil)
}

// A new row of any kind in the table is a flag, without further code.
func TestANewSettingIsAFlag(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		kind    spec.Kind
		choices []string
		args    []string
		want    string
	}{
		{kind: spec.Text, args: []string{"--brand-new", ""}, want: `""`},
		{kind: spec.URL, args: []string{"--brand-new", "https://example.com"}, want: `"https://example.com"`},
		{kind: spec.PEM, args: []string{"--brand-new", writtenFile(t, "PEM\n")}, want: `"PEM"`},
		{kind: spec.Time, args: []string{"--brand-new", "2030-01-31"}, want: `"2030-01-31T00:00:00Z"`},
		{kind: spec.Choice, choices: []string{"Red", "Green"}, args: []string{"--brand-new", "red"}, want: `"Red"`},
		{kind: spec.Choice, choices: []string{"Red", "Green"}, args: []string{"--brand-new", "blue"}, want: `"blue"`},
		{kind: spec.Whole, args: []string{"--brand-new", "0"}, want: `0`},
		{kind: spec.Number, args: []string{"--brand-new", "0.5"}, want: `0.5`},
		{kind: spec.Switch, args: []string{"--brand-new"}, want: `true`},
		{kind: spec.Switch, args: []string{"--brand-new=False"}, want: `false`},
		{kind: spec.Lines, args: []string{"--brand-new", "a,b", "--brand-new", "c"}, want: `["a","b","c"]`},
		{kind: spec.List, args: []string{"--brand-new", "1,2.5"}, want: `[1,2.5]`},
		{kind: spec.JSON, args: []string{"--brand-new", `{"a":1.50}`}, want: `{"a":1.50}`},
	} {
		table := append([]spec.Setting{{
			Name: "outer.brandNew", Section: spec.Advanced, Kind: row.kind, Choices: row.choices, Default: "none",
			Help: "Says \"so\": {1} \\ 100 %.",
		}}, spec.Subscription...)
		settings, err := settingsOf(t, table, append(row.args, "--policy", "ga-2019")...)
		require.NoError(t, err, row.kind)
		require.JSONEq(t, `{"outer":{"brandNew":`+row.want+`},"retryPolicy":{"policy":"ga-2019"}}`, encoded(t, settings))
		settings, err = settingsOf(t, table)
		require.NoError(t, err)
		require.Empty(t, settings)
	}
}

func writtenFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestConnectionFlags(t *testing.T) {
	t.Parallel()
	settings, err := settingsOf(t, spec.Subscription, "--minimum-tls-version-allowed", "1.3",
		"--certificate-authorities", writtenFile(t, "CA\n"), "--client-certificate", writtenFile(t, "CERT\n"),
		"--client-key", writtenFile(t, "KEY\n"), "--oauth2-token-url", "https://login.example.com/token",
		"--oauth2-client-id", "postrider", "--oauth2-client-secret-file", writtenFile(t, "s3cret\n"),
		"--oauth2-scope", "api://orders/.default")
	require.NoError(t, err)
	require.JSONEq(t, `{"minimumTlsVersionAllowed":"1.3","certificateAuthorities":"CA",`+
		`"clientCertificate":{"certificate":"CERT","privateKey":"KEY"},
		"oauth2":{"tokenUrl":"https://login.example.com/token","clientId":"postrider","clientSecret":"s3cret",`+
		`"scope":"api://orders/.default"}}`, encoded(t, settings))
	_, err = settingsOf(t, spec.Subscription, "--client-key", "/none")
	require.Error(t, err)
}

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

// --endpoint is what the Azure CLI means by it: the id or the address of the destination's type.
func TestDestinationFlags(t *testing.T) {
	t.Parallel()
	const id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/shop/queues/orders"
	for args, want := range map[string]string{
		"--endpoint-type servicebusqueue --endpoint " + id + " --shared-access-key-name send --primary-key-file KEY": `{
			"endpointType":"ServiceBusQueue","properties":{"resourceId":"` + id + `","sharedAccessKeyName":"send",
			"primaryKey":"s3cret"}}`,
		"--endpoint-type storagequeue --endpoint https://a.example --qttl 60 --connection-string-file KEY": `{
			"endpointType":"StorageQueue","properties":{"endpoint":"https://a.example",
			"queueMessageTimeToLiveInSeconds":60,"connectionString":"s3cret"}}`,
		"--endpoint-type kafka --servers a:1,b:2 --kafka-topic t --tls false --password-file KEY --username u": `{
			"endpointType":"Kafka","properties":{"servers":["a:1","b:2"],"topic":"t","tls":false,"username":"u",
			"password":"s3cret"}}`,
		"--endpoint-type natsjetstream --servers a:1 --nats-subject s --nats-stream S --nats-credentials KEY": `{
			"endpointType":"NatsJetStream","properties":{"servers":["a:1"],"subject":"s","stream":"S",
			"credentials":"s3cret"}}`,
		"--secondary-key-file KEY": `{"properties":{"secondaryKey":"s3cret"}}`,
	} {
		key := writtenFile(t, "s3cret\n")
		settings, err := settingsOf(t, spec.Subscription, strings.Fields(strings.ReplaceAll(args, "KEY", key))...)
		require.NoError(t, err, args)
		require.JSONEq(t, `{"destination":`+want+`}`, encoded(t, settings), args)
	}
	settings, err := settingsOf(t, spec.Subscription, "--endpoint-type", "webhook", "--endpoint", "https://a.example")
	require.NoError(t, err)
	require.JSONEq(t, `{"destination":{"endpointType":"WebHook"},"endpointUrl":"https://a.example"}`, encoded(t, settings))
	for args, says := range map[string]string{
		"--endpoint-type azurefunction --endpoint /f":                        "the URL of the function's HTTP trigger",
		"--endpoint-type NamespaceTopic":                                     "NamespaceTopic is not supported: deliver to a",
		"--endpoint-type partnerdestination":                                 "is not supported: ",
		"--endpoint-type monitoralert":                                       "is not supported: ",
		"--endpoint " + id:                                                   "add --endpoint-type",
		"--endpoint-type kafka --endpoint a:1":                               "use --servers HOST:PORT and --kafka-topic",
		"--endpoint-type natsjetstream --endpoint a:1":                       "use --servers HOST:PORT and --nats-subject",
		"--endpoint-type eventhub --endpoint https://a --service-url //b":    "--endpoint and --service-url are the same",
		"--endpoint-type eventhub --endpoint /a --destination-resource-id b": "--destination-resource-id are the same",
	} {
		_, err := settingsOf(t, spec.Subscription, strings.Fields(args)...)
		require.ErrorContains(t, err, says, args)
		require.True(t, terminal.IsUsage(err), "the exit code is 2")
	}
}
