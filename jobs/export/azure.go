package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azpolicy "github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"postrider/jobs/endpoint"
)

type azureContainer struct {
	client *container.Client
	// identity is nil if there is a key or a SAS token.
	identity azcore.TokenCredential
}

// azureVariables are the environment variables of a location's parameters, which come first.
var azureVariables = map[string]string{
	"storage_account": "AZURE_STORAGE_ACCOUNT", "domain": "AZURE_STORAGE_DOMAIN", "protocol": "AZURE_STORAGE_PROTOCOL",
	"cdn": "AZURE_STORAGE_IS_CDN", "localemu": "AZURE_STORAGE_IS_LOCAL_EMULATOR",
}

func azureSetting(query url.Values, name string) string {
	return cmp.Or(query.Get(name), os.Getenv(azureVariables[name]))
}

// azureServer returns the account and the URL of its server. Emulators have the account in the path.
func azureServer(query url.Values) (account string, server *url.URL) {
	account = azureSetting(query, "storage_account")
	domain := cmp.Or(azureSetting(query, "domain"), "blob.core.windows.net")
	server = &url.URL{Scheme: cmp.Or(azureSetting(query, "protocol"), "https"), Host: account + "." + domain}
	emulator, _ := strconv.ParseBool(azureSetting(query, "localemu"))
	cdn, _ := strconv.ParseBool(azureSetting(query, "cdn"))
	if emulator || strings.HasPrefix(domain, "127.0.0.1") || strings.HasPrefix(domain, "localhost") {
		server.Host, server.Path = domain, account
	} else if cdn {
		server.Host = domain
	}
	return account, server
}

func openAzure(name string, query url.Values, client *http.Client) (bucket, error) {
	account, server := azureServer(query)
	if account == "" {
		return nil, plainError("the storage account is unknown: set AZURE_STORAGE_ACCOUNT, or storage_account=… in the " +
			"location")
	}
	options := azcore.ClientOptions{
		Transport: concealing{client}, Retry: azpolicy.RetryOptions{MaxRetries: tries - 1, RetryDelay: retryPause},
	}
	at, of := server.JoinPath(name), &container.ClientOptions{ClientOptions: options}
	c := &azureContainer{}
	key, signature := os.Getenv("AZURE_STORAGE_KEY"), os.Getenv("AZURE_STORAGE_SAS_TOKEN")
	var err error
	switch {
	case key != "":
		var shared *container.SharedKeyCredential
		if shared, err = container.NewSharedKeyCredential(account, key); err != nil {
			return nil, plainError("AZURE_STORAGE_KEY must be the key of the storage account in base64")
		}
		c.client, err = container.NewClientWithSharedKeyCredential(at.String(), shared, of)
	case signature != "":
		if _, own := azureServer(nil); own.Host != server.Host || own.Scheme != server.Scheme {
			return nil, plainError("a location must not send AZURE_STORAGE_SAS_TOKEN to another server: " +
				"set AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_DOMAIN and AZURE_STORAGE_PROTOCOL instead of its parameters")
		}
		at.RawQuery = strings.TrimPrefix(signature, "?")
		c.client, err = container.NewClientWithNoCredential(at.String(), of)
	default:
		if c.identity, err = azureIdentity(options); err != nil {
			break
		}
		c.client, err = container.NewClient(at.String(), c.identity, of)
	}
	if err != nil {
		return nil, fmt.Errorf("open azblob://%s: %w", name, err)
	}
	return c, nil
}

// azureIdentity is the workload identity of the pod, or the managed identity of the machine.
func azureIdentity(options azcore.ClientOptions) (azcore.TokenCredential, error) {
	if os.Getenv("AZURE_FEDERATED_TOKEN_FILE") != "" {
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: options})
	}
	managed := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
	if id := os.Getenv("AZURE_CLIENT_ID"); id != "" {
		managed.ID = azidentity.ClientID(id)
	}
	return azidentity.NewManagedIdentityCredential(managed)
}

// put sends one request if the body is smaller than a block. Blocks that are not committed are no object.
func (c *azureContainer) put(ctx context.Context, key string, body io.Reader, _ int64) error {
	if err := c.checkIdentity(ctx); err != nil {
		return err
	}
	as := contentType(key)
	_, err := c.client.NewBlockBlobClient(key).UploadStream(ctx, body, &blockblob.UploadStreamOptions{
		BlockSize: blockSize, Concurrency: 1, HTTPHeaders: &blob.HTTPHeaders{BlobContentType: &as},
	})
	var response *azcore.ResponseError
	if errors.As(err, &response) {
		return rejected(err, strconv.Itoa(response.StatusCode), response.ErrorCode, "")
	}
	return err
}

// checkIdentity gets a token, which is kept until it expires.
func (c *azureContainer) checkIdentity(ctx context.Context) error {
	if c.identity == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	scopes := []string{"https://storage.azure.com/.default"}
	_, err := c.identity.GetToken(ctx, azpolicy.TokenRequestOptions{Scopes: scopes})
	if err == nil {
		return nil
	}
	return &endpoint.PlainError{Cause: err, Text: "no credentials for Azure: set AZURE_STORAGE_KEY or " +
		"AZURE_STORAGE_SAS_TOKEN, or give this machine a managed identity or a workload identity"}
}

// concealing removes the query of a URL, which may be a SAS token, from errors.
type concealing struct{ *http.Client }

// Do sends a request.
func (c concealing) Do(r *http.Request) (*http.Response, error) {
	resp, err := c.Client.Do(r) //nolint:gosec // the operator sets the URL
	var failed *url.Error
	if errors.As(err, &failed) {
		failed.URL, _, _ = strings.Cut(failed.URL, "?")
	}
	return resp, err
}
