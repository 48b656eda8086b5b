package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"postrider/jobs/endpoint"
)

// Timeout is how long a location may take for one file.
const Timeout = time.Minute

// cloudError is an error that S3's API responded with.
type cloudError interface {
	ErrorCode() string
	ErrorMessage() string
}

// ErrorText is an error of writing a file to a directory or a bucket.
func ErrorText(err error) string {
	var file *fs.PathError
	var link *os.LinkError
	var azure *azcore.ResponseError
	var s3 cloudError
	switch {
	case errors.As(err, &file):
		return file.Path + ": " + file.Err.Error()
	case errors.As(err, &link):
		return link.New + ": " + link.Err.Error()
	case errors.As(err, &azure):
		return strings.TrimSpace(fmt.Sprintf("the location responded with %d %s", azure.StatusCode, azure.ErrorCode))
	case errors.As(err, &s3):
		return strings.TrimSuffix("the location responded with "+s3.ErrorCode()+": "+s3.ErrorMessage(), ": ")
	case endpoint.IsNetworkError(err):
		return endpoint.ErrorText(err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("it was not written within %g s", Timeout.Seconds())
	default:
		return "it could not be written; the log of the node has the cause"
	}
}
