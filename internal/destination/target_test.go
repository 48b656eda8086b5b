package destination_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/destination"
)

// Secrets are kept for the same target and credentials only, and not beside others.
func TestKeepSecrets(t *testing.T) {
	t.Parallel()
	no, plain, servers := false, "http://shop.servicebus.windows.net", []string{"b:9092"}
	bus := destination.Properties{
		Endpoint: "https://shop.servicebus.windows.net", EntityName: "orders", SharedAccessKeyName: "send",
		PrimaryKey: "one", SecondaryKey: "two",
	}
	broker := destination.Properties{
		Servers: []string{"a:9092"}, Topic: "orders", SASLMechanism: destination.SASLPlain, Username: "u", Password: "one",
	}
	for name, row := range map[string]struct {
		kind   destination.Type
		stored destination.Properties
		oauth2 bool
		change func(*destination.Properties)
		kept   bool
	}{
		"as read":             {sb, bus, false, func(*destination.Properties) {}, true},
		"without the name":    {sb, bus, false, func(p *destination.Properties) { p.SharedAccessKeyName = "" }, true},
		"another name":        {sb, bus, false, func(p *destination.Properties) { p.SharedAccessKeyName = "other" }, false},
		"another host":        {sb, bus, false, func(p *destination.Properties) { p.Endpoint = "https://evil.test" }, false},
		"without TLS":         {sb, bus, false, func(p *destination.Properties) { p.Endpoint = plain }, false},
		"a token instead":     {sb, bus, true, func(*destination.Properties) {}, false},
		"a listener's token":  {relay, bus, true, func(*destination.Properties) {}, true},
		"a broker":            {kafka, broker, false, func(*destination.Properties) {}, true},
		"another mechanism":   {kafka, broker, false, func(p *destination.Properties) { p.SASLMechanism = "none" }, false},
		"other servers":       {kafka, broker, false, func(p *destination.Properties) { p.Servers = servers }, false},
		"a broker, plain":     {kafka, broker, false, func(p *destination.Properties) { p.TLS = &no }, false},
		"only the second key": {sb, bus, false, func(p *destination.Properties) { p.SecondaryKey = "new" }, false},
	} {
		stored := &destination.Destination{EndpointType: row.kind, Properties: &row.stored}
		given := stored.WithoutSecrets()
		row.change(given.Properties)
		kept := given.KeepSecrets(stored, row.oauth2)
		require.Equal(t, row.kept, kept.Properties.PrimaryKey+kept.Properties.Password == "one", name)
		require.Empty(t, given.Properties.PrimaryKey+given.Properties.Password, "%s: it is not changed", name)
	}
}

// Types whose clients may be anonymous must state the secret of a new target, or its requests would have none.
func TestLostSecret(t *testing.T) {
	t.Parallel()
	stored := &destination.Destination{EndpointType: nats, Properties: &destination.Properties{
		Servers: []string{"a:4222"}, Subject: "orders", Password: "token",
	}}
	given := stored.WithoutSecrets()
	require.Empty(t, given.LostSecret(stored))
	given.Properties.Subject = "other"
	require.Equal(t, "password", given.LostSecret(stored))
	given.Properties.Password = "new"
	require.Empty(t, given.LostSecret(stored))
	require.Empty(t, given.LostSecret(nil))
}
