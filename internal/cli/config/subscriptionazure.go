package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// azureFlags are flags of the Azure CLI that postrider does not support, or names differently. The error for each names
// the replacement. Source: Microsoft, Azure CLI reference, az eventgrid event-subscription create and update, 2026-05.
type azureFlags struct {
	Name             azureOnly `hidden:"" short:"n" instead:"the topic and the event subscription are the verb's two arguments"`
	SourceResourceID azureOnly `hidden:"" name:"source-resource-id" instead:"the topic is the verb's first argument"`
	ResourceID       azureOnly `hidden:"" name:"resource-id" instead:"the topic is the verb's first argument"`
	TopicName        azureOnly `hidden:"" instead:"the topic is the verb's first argument"`
	SystemTopicName  azureOnly `hidden:"" instead:"the topic is the verb's first argument"`
	ResourceGroup    azureOnly `hidden:"" short:"g" instead:"there are no resource groups: omit it"`
	IDs              azureOnly `hidden:"" name:"ids" instead:"the topic and the event subscription are the verb's two arguments"`

	TenantID      azureOnly `hidden:"" name:"azure-active-directory-tenant-id" instead:"use --oauth2-token-url https://login.microsoftonline.com/TENANT/oauth2/v2.0/token, --oauth2-client-id and --oauth2-client-secret-file"`
	ApplicationID azureOnly `hidden:"" name:"azure-active-directory-application-id-or-uri" instead:"use --oauth2-scope URI/.default, with --oauth2-token-url, --oauth2-client-id and --oauth2-client-secret-file"`

	DeliveryIdentity             azureOnly `hidden:"" instead:"managed identities exist only in Azure; use --oauth2-token-url and the other --oauth2 flags"`
	DeliveryIdentityEndpoint     azureOnly `hidden:"" instead:"managed identities exist only in Azure; use --endpoint"`
	DeliveryIdentityEndpointType azureOnly `hidden:"" instead:"managed identities exist only in Azure; use --endpoint"`
	DeadletterIdentity           azureOnly `hidden:"" name:"deadletter-identity" instead:"managed identities exist only in Azure; use --deadletter-endpoint alone"`
	DeadletterIdentityEndpoint   azureOnly `hidden:"" name:"deadletter-identity-endpoint" instead:"managed identities exist only in Azure; use --deadletter-endpoint"`
	StorageQueueTTL              azureOnly `hidden:"" name:"storage-queue-msg-ttl" aliases:"qttl" instead:"events are not delivered to storage queues: --endpoint is a URL"`

	Add    azureOnly `hidden:"" instead:"each setting has its own flag"`
	Set    azureOnly `hidden:"" instead:"each setting has its own flag"`
	Remove azureOnly `hidden:"" instead:"use --unset PROPERTY of subscription update"`
	Query  azureOnly `hidden:"" instead:"use -o json and jq"`
}

// azureOnly is a flag that is always rejected, with the text of its tag.
type azureOnly struct{}

// Decode implements kong.MapperValue.
func (*azureOnly) Decode(ctx *kong.DecodeContext) error {
	return fmt.Errorf("a flag of the Azure CLI; here, %s", ctx.Value.Tag.Get("instead"))
}

// azureLists are flags whose values the Azure CLI separates by spaces, with an example in postrider's syntax.
var azureLists = map[string]string{
	"--included-event-types":       "Shop.OrderPlaced,Shop.OrderPaid",
	"--labels":                     "billing,team-a",
	"--advanced-filter":            "'data.total NumberGreaterThan 100'",
	"--delivery-attribute-mapping": "'X-Team static audit'",
}

// MisreadList explains the syntax of lists if a word of a list was read as an argument; "" for other errors.
func MisreadList(args []string, err error) string {
	if err == nil || !strings.Contains(err.Error(), "unexpected argument") {
		return ""
	}
	for _, arg := range slices.Backward(args) {
		if as := azureLists[arg]; as != "" {
			return fmt.Sprintf("%s needs its values in one argument: %s %s\n", arg, arg, as)
		}
	}
	return ""
}
