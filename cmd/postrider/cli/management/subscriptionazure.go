package management

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// azureFlags are those of the Azure CLI that there is nothing here for, or something else. Whoever brings a command
// line along is told what to say instead. Source: Microsoft, Azure CLI reference, az eventgrid event-subscription
// create and update, 2026-05.
type azureFlags struct {
	Name             azureOnly `hidden:"" short:"n" instead:"the topic and the event subscription are the verb's two arguments"`
	SourceResourceID azureOnly `hidden:"" name:"source-resource-id" instead:"the topic is the verb's first argument"`
	ResourceID       azureOnly `hidden:"" name:"resource-id" instead:"the topic is the verb's first argument"`
	TopicName        azureOnly `hidden:"" instead:"the topic is the verb's first argument"`
	SystemTopicName  azureOnly `hidden:"" instead:"the topic is the verb's first argument"`
	ResourceGroup    azureOnly `hidden:"" short:"g" instead:"there are none here: leave it out"`
	IDs              azureOnly `hidden:"" name:"ids" instead:"the topic and the event subscription are the verb's two arguments"`

	TenantID      azureOnly `hidden:"" name:"azure-active-directory-tenant-id" instead:"say --oauth2-token-url https://login.microsoftonline.com/TENANT/oauth2/v2.0/token, --oauth2-client-id and --oauth2-client-secret-file"`
	ApplicationID azureOnly `hidden:"" name:"azure-active-directory-application-id-or-uri" instead:"say --oauth2-scope URI/.default, beside --oauth2-token-url, --oauth2-client-id and --oauth2-client-secret-file"`

	DeliveryIdentity             azureOnly `hidden:"" instead:"managed identities are Azure's own; --oauth2-token-url and its like get tokens"`
	DeliveryIdentityEndpoint     azureOnly `hidden:"" instead:"managed identities are Azure's own; say --endpoint"`
	DeliveryIdentityEndpointType azureOnly `hidden:"" instead:"managed identities are Azure's own; say --endpoint"`
	DeadletterIdentity           azureOnly `hidden:"" name:"deadletter-identity" instead:"managed identities are Azure's own; say --deadletter-endpoint alone"`
	DeadletterIdentityEndpoint   azureOnly `hidden:"" name:"deadletter-identity-endpoint" instead:"managed identities are Azure's own; say --deadletter-endpoint"`
	StorageQueueTTL              azureOnly `hidden:"" name:"storage-queue-msg-ttl" aliases:"qttl" instead:"storage queues are not delivered to: --endpoint is a URL"`

	Add    azureOnly `hidden:"" instead:"each setting has a flag of its own"`
	Set    azureOnly `hidden:"" instead:"each setting has a flag of its own"`
	Remove azureOnly `hidden:"" instead:"say --unset PROPERTY, of subscription update"`
	Query  azureOnly `hidden:"" instead:"say -o json, and ask jq"`
}

// azureOnly is a flag that is always refused, with what its tag says instead.
type azureOnly struct{}

// Decode implements kong.MapperValue.
func (*azureOnly) Decode(ctx *kong.DecodeContext) error {
	return fmt.Errorf("a flag of the Azure CLI; here, %s", ctx.Value.Tag.Get("instead"))
}

// azureLists are flags that the Azure CLI gives several words, one after the other, and how they are written here.
var azureLists = map[string]string{
	"--included-event-types":       "Shop.OrderPlaced,Shop.OrderPaid",
	"--labels":                     "billing,team-a",
	"--advanced-filter":            "'data.total NumberGreaterThan 100'",
	"--delivery-attribute-mapping": "'X-Team static audit'",
}

// MisreadList says how a list is written, where a word of one was taken for an argument; "" elsewhere.
func MisreadList(args []string, err error) string {
	if err == nil || !strings.Contains(err.Error(), "unexpected argument") {
		return ""
	}
	for _, arg := range slices.Backward(args) {
		if as := azureLists[arg]; as != "" {
			return fmt.Sprintf("%s takes its values as one argument: %s %s\n", arg, arg, as)
		}
	}
	return ""
}
