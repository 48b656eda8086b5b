package export

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"postrider/internal/endpointconf"
	"postrider/jobs/endpoint"
)

// Timeout is how long a location may take for one file.
const Timeout = time.Minute

// File is a file that is being written to an external location. It exists only after Commit has succeeded, complete.
// Without a location it is its Writer.
type File struct {
	io.Writer
	end func(commit bool) error // nil = ended
}

// Commit completes the file.
func (f *File) Commit() error {
	if f.end == nil {
		return nil
	}
	end := f.end
	f.end = nil
	return end(true)
}

// Abort removes what was written, if possible. After Commit it does nothing.
func (f *File) Abort() {
	if f.end != nil {
		_ = f.end(false)
	}
	f.end = nil
}

// CreateFile begins a file in a location. It replaces a file of that name.
func CreateFile(ctx context.Context, target endpointconf.ExportTarget, name string) (*File, error) {
	return NewLocations(endpointconf.ExportLocations{}).create(ctx, target, name)
}

// Dead letters are the publisher's data: other users of the machine must not read them.
const (
	directoryMode = 0o750
	fileMode      = 0o640
)

// createLocalFile writes a temporary file and renames it. The root keeps it in its directory, whatever names and
// symbolic links there are. The directory must exist: a missing one may be a disk that is not mounted.
func createLocalFile(directory, name string) (*File, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	temporary := path.Join(path.Dir(name), "."+path.Base(name)+"."+rand.Text()[:8]+".part")
	if err := root.MkdirAll(path.Dir(name), directoryMode); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	file, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &File{Writer: file, end: func(commit bool) (err error) {
		defer func() { err = errors.Join(err, root.Close()) }()
		if !commit {
			return errors.Join(file.Close(), root.Remove(temporary))
		}
		if err := errors.Join(file.Sync(), file.Close()); err != nil {
			return errors.Join(err, root.Remove(temporary))
		}
		if err := root.Rename(temporary, name); err != nil {
			return errors.Join(err, root.Remove(temporary))
		}
		// The rename survives a power failure.
		directory, err := root.Open(path.Dir(name))
		if err != nil {
			return err
		}
		return errors.Join(directory.Sync(), directory.Close())
	}}, nil
}

// bucket is an S3 bucket or an Azure container.
type bucket interface {
	// put writes an object, completely or not at all. It replaces an object of that name. A size of -1 is unknown.
	put(ctx context.Context, key string, body io.Reader, size int64) error
}

// blockSize is the size of the parts of an object whose size is unknown. One part is in memory.
const blockSize = 8 << 20

func contentType(key string) string {
	if path.Ext(key) != ".json" {
		return "application/x-ndjson" // one record a line
	}
	return "application/json"
}

// createObject begins an object of unknown size.
func createObject(ctx context.Context, b bucket, key string) *File {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := b.put(ctx, key, r, -1)
		_ = r.CloseWithError(err)
		done <- err
	}()
	return &File{Writer: w, end: func(commit bool) error {
		if commit {
			_ = w.Close()
		} else {
			_ = w.CloseWithError(context.Canceled)
		}
		return <-done
	}}
}

// Locations writes files to external locations. It keeps buckets open: finding the credentials of one takes a second.
type Locations struct {
	Allowed endpointconf.ExportLocations

	client  *http.Client
	mu      sync.Mutex
	buckets map[endpointconf.Location]bucket
}

// NewLocations returns Locations with no open bucket. allowed are the locations that the server allows.
func NewLocations(allowed endpointconf.ExportLocations) *Locations {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = Timeout
	// Another server must get neither dead letters nor credentials.
	client := &http.Client{
		Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Locations{Allowed: allowed, client: client, buckets: map[endpointconf.Location]bucket{}}
}

// bucket returns an open bucket.
func (p *Locations) bucket(ctx context.Context, l endpointconf.Location) (bucket, error) {
	l.Path = "" // it belongs to the objects, not to the bucket
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, ok := p.buckets[l]; ok {
		return b, nil
	}
	query, err := url.ParseQuery(l.Query)
	if err != nil {
		return nil, err
	}
	var b bucket
	if l.Scheme == "s3" {
		b, err = openS3(ctx, l.Bucket, query, p.client)
	} else {
		b, err = openAzure(l.Bucket, query, p.client)
	}
	if err != nil {
		return nil, err
	}
	p.buckets[l] = b
	return b, nil
}

// Write writes a file to a location, completely or not at all.
func (p *Locations) Write(ctx context.Context, target endpointconf.ExportTarget, name string, body []byte) error {
	if target.Location.Scheme != "file" {
		b, err := p.bucket(ctx, target.Location)
		if err != nil {
			return err
		}
		return b.put(ctx, key(target, name), bytes.NewReader(body), int64(len(body)))
	}
	f, err := p.create(ctx, target, name)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(body); err != nil {
		return err
	}
	return f.Commit()
}

func key(target endpointconf.ExportTarget, name string) string {
	return path.Join(target.Location.Path, target.Path, name)
}

func (p *Locations) create(ctx context.Context, target endpointconf.ExportTarget, name string) (*File, error) {
	if target.Location.Scheme == "file" {
		return createLocalFile(target.Location.Path, path.Join(target.Path, name))
	}
	b, err := p.bucket(ctx, target.Location)
	if err != nil {
		return nil, err
	}
	return createObject(ctx, b, key(target, name)), nil
}

// Close closes idle connections.
func (p *Locations) Close() { p.client.CloseIdleConnections() }

// credentialsTimeout is how long finding credentials may take: a machine without a role may have no metadata server.
const credentialsTimeout = 15 * time.Second

// azureDenied: Azurite does not tell these errors apart as Azure does.
const azureDenied = "check AZURE_STORAGE_KEY, renew AZURE_STORAGE_SAS_TOKEN with the right to write, or allow this " +
	"machine in the account's firewall"

// advice is what to do about an error of S3 or Azure.
var advice = map[string]string{ //nolint:gosec // names of variables, no credentials
	"NoSuchBucket":                    "create the bucket or correct the location",
	"InvalidAccessKeyId":              "check AWS_ACCESS_KEY_ID",
	"SignatureDoesNotMatch":           "check AWS_SECRET_ACCESS_KEY",
	"InvalidToken":                    "check AWS_SESSION_TOKEN",
	"ExpiredToken":                    "renew the credentials and AWS_SESSION_TOKEN",
	"AccessDenied":                    "grant the right s3:PutObject",
	"AuthorizationHeaderMalformed":    "set the region of the bucket in the location: region=…",
	"PermanentRedirect":               "set the region of the bucket in the location: region=…",
	"RequestTimeTooSkewed":            "correct the clock of this machine",
	"ContainerNotFound":               "create the container or correct the location",
	"AuthenticationFailed":            azureDenied,
	"AuthorizationFailure":            azureDenied,
	"AuthorizationPermissionMismatch": "grant the right to write, such as Storage Blob Data Contributor",
}

// rejected is the error of a response.
func rejected(err error, status, code, message string) error {
	text := "the location responded with " + strings.TrimSpace(status+" "+code)
	if advised := advice[code]; advised != "" {
		message = advised
	}
	if message != "" {
		text += ": " + message
	}
	return &endpoint.PlainError{Text: text, Cause: err}
}

// ErrorText returns the error of writing a file in plain words.
func ErrorText(err error) string {
	var file *fs.PathError
	var link *os.LinkError
	var plain *endpoint.PlainError
	switch {
	case errors.As(err, &plain):
		return plain.Text
	case errors.As(err, &file):
		return file.Path + ": " + file.Err.Error()
	case errors.As(err, &link):
		return link.New + ": " + link.Err.Error()
	case endpoint.IsNetworkError(err):
		return endpoint.ErrorText(err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("it was not written within %g s", Timeout.Seconds())
	default:
		return "it could not be written; the log of the node has the cause"
	}
}
