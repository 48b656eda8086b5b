package config

import (
	"fmt"
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
	DeliveryIdentityEndpointType azureOnly `hidden:"" instead:"managed identities exist only in Azure; use --endpoint-type with a key"`
	DeadletterIdentity           azureOnly `hidden:"" name:"deadletter-identity" instead:"managed identities exist only in Azure; use --deadletter-endpoint alone"`
	DeadletterIdentityEndpoint   azureOnly `hidden:"" name:"deadletter-identity-endpoint" instead:"managed identities exist only in Azure; use --deadletter-endpoint"`

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

// azureLists are flags whose values the Azure CLI separates by spaces; true: they are the words of one value.
var azureLists = map[string]bool{
	"--included-event-types": false, "--labels": false, "--input-mapping-fields": false,
	"--input-mapping-default-values": false, "--advanced-filter": true, "--delivery-attribute-mapping": true,
}

// wordSeparator is between the words that SpacedLists joins. No argument of a program contains it.
const wordSeparator = "\x00"

// SpacedLists rewrites a command line with lists in the Azure CLI's syntax: all words after the flag are its values.
// nil: there is no such list.
func SpacedLists(args []string) (rewritten []string) {
	spaced := false
	for i := 0; i < len(args); i++ {
		oneValue, list := azureLists[args[i]]
		end := i + 1
		for list && end < len(args) && isWord(args[end]) {
			end++
		}
		words := args[i+1 : end]
		if len(words) < 2 {
			rewritten = append(rewritten, args[i])
			continue
		}
		if oneValue {
			words = []string{strings.Join(words, wordSeparator)}
		}
		for _, word := range words {
			rewritten = append(rewritten, args[i]+"="+word)
		}
		i, spaced = end-1, true
	}
	if !spaced {
		return nil
	}
	return rewritten
}

// isWord reports whether an argument is a value: no flag, or a negative number.
func isWord(arg string) bool {
	rest, dash := strings.CutPrefix(arg, "-")
	return !dash || rest != "" && strings.Trim(rest[:1], ".0123456789") == ""
}
