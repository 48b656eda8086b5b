package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"postrider/internal/endpointconf"
	"postrider/jobs/endpoint"
)

// Blob is a file of an Azure container.
type Blob struct {
	// Name is the blob's name in its container.
	Name string

	container *azureContainer
}

// Blobs lists the blobs of an Azure container, or those below the location's path, in the order of their names. It
// reads one page of the list at a time.
func Blobs(ctx context.Context, l endpointconf.Location) iter.Seq2[*Blob, error] {
	return func(yield func(*Blob, error) bool) {
		opened, err := NewLocations(endpointconf.ExportLocations{}).bucket(ctx, l)
		if err != nil {
			yield(nil, err)
			return
		}
		c, ok := opened.(*azureContainer)
		if !ok {
			yield(nil, errors.New("only Azure containers can be read"))
			return
		}
		if err := c.checkIdentity(ctx); err != nil {
			yield(nil, err)
			return
		}
		pages := c.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &l.Path})
		for pages.More() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(nil, unreadable(err))
				return
			}
			for _, item := range page.Segment.BlobItems {
				rest, _ := strings.CutPrefix(*item.Name, l.Path)
				if l.Path != "" && rest != "" && rest[0] != '/' {
					continue // another folder, whose name begins like this one
				}
				if !yield(&Blob{*item.Name, c}, nil) {
					return
				}
			}
		}
	}
}

// Read returns the content of the blob, of up to most bytes.
func (b *Blob) Read(ctx context.Context, most int64) ([]byte, error) {
	response, err := b.container.client.NewBlobClient(b.Name).DownloadStream(ctx, nil)
	if err != nil {
		return nil, unreadable(err)
	}
	body := response.NewRetryReader(ctx, nil)
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(io.LimitReader(body, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("has more than %d bytes", most)
	}
	return text, err
}

// readAdvice is what to do about an error of Azure.
var readAdvice = map[string]string{
	"ContainerNotFound":    "correct the container's name",
	"AuthenticationFailed": azureUnreadable, "AuthorizationFailure": azureUnreadable,
	"AuthorizationPermissionMismatch": "grant the rights to read and list, such as Storage Blob Data Reader",
}

const azureUnreadable = "check AZURE_STORAGE_KEY, renew AZURE_STORAGE_SAS_TOKEN with the rights to read and list, or " +
	"allow this machine in the account's firewall"

// unreadable is the error of a read in plain words.
func unreadable(err error) error {
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		return err
	}
	text := "the location responded with " + strings.TrimSpace(strconv.Itoa(response.StatusCode)+" "+response.ErrorCode)
	if advised := readAdvice[response.ErrorCode]; advised != "" {
		text += ": " + advised
	}
	return &endpoint.PlainError{Text: text, Cause: err}
}

// ParseContainer reads the URL of an Azure container: azblob://CONTAINER/PREFIX, or
// https://ACCOUNT.blob.core.windows.net/CONTAINER/PREFIX.
func ParseContainer(raw string) (endpointconf.Location, error) {
	u, err := url.Parse(raw)
	if err == nil && u.Scheme == "https" {
		account, domain, ok := strings.Cut(u.Host, ".")
		name := strings.Trim(u.EscapedPath(), "/")
		switch {
		case u.RawQuery != "":
			return endpointconf.Location{}, errors.New("must have no query: set AZURE_STORAGE_SAS_TOKEN to a SAS token")
		case !ok || name == "" || u.User != nil:
			return endpointconf.Location{}, errors.New("must name an account and a container: " +
				"https://ACCOUNT.blob.core.windows.net/CONTAINER")
		}
		raw = "azblob://" + name + "?" + url.Values{"storage_account": {account}, "domain": {domain}}.Encode()
	}
	l, err := endpointconf.ParseLocation(raw)
	if err == nil && l.Scheme != "azblob" {
		err = errors.New("must begin with azblob:// or https://")
	}
	return l, err
}
