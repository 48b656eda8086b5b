package export

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://
	_ "gocloud.dev/blob/s3blob"    // s3://

	"postrider/jobs/endpoint"
	"postrider/policy"
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
func CreateFile(ctx context.Context, target policy.ExportTarget, name string) (*File, error) {
	return NewLocations(policy.ExportLocations{}).create(ctx, target, name)
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
	var file *os.File
	if err = root.MkdirAll(path.Dir(name), directoryMode); err == nil {
		file, err = root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &File{Writer: file, end: func(commit bool) (err error) {
		defer func() { err = errors.Join(err, root.Close()) }()
		if !commit {
			return errors.Join(file.Close(), root.Remove(temporary))
		}
		if err = errors.Join(file.Sync(), file.Close()); err == nil {
			err = root.Rename(temporary, name)
		}
		if err != nil {
			return errors.Join(err, root.Remove(temporary))
		}
		return syncDirectory(root, path.Dir(name))
	}}, nil
}

// syncDirectory makes a rename survive a power failure.
func syncDirectory(root *os.Root, name string) error {
	directory, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

// createObject begins an object. It is not written if its context ends before Close.
func createObject(ctx context.Context, bucket *blob.Bucket, key string) (*File, error) {
	ctx, cancel := context.WithCancel(ctx)
	contentType := "application/json"
	if path.Ext(key) != ".json" {
		contentType = "application/x-ndjson" // one record a line
	}
	w, err := bucket.NewWriter(ctx, key, &blob.WriterOptions{ContentType: contentType})
	if err != nil {
		cancel()
		return nil, err
	}
	return &File{Writer: w, end: func(commit bool) error {
		defer cancel()
		if !commit {
			cancel()
		}
		return w.Close()
	}}, nil
}

// Locations writes files to external locations. It keeps buckets open: finding the credentials of one takes a second.
type Locations struct {
	Allowed policy.ExportLocations

	mu      sync.Mutex
	buckets map[policy.Location]*blob.Bucket
}

// NewLocations returns Locations with no open bucket. allowed are the locations that the server allows.
func NewLocations(allowed policy.ExportLocations) *Locations {
	return &Locations{Allowed: allowed, buckets: map[policy.Location]*blob.Bucket{}}
}

// bucket opens a bucket with the credentials that the library of the cloud finds.
func (p *Locations) bucket(ctx context.Context, l policy.Location) (*blob.Bucket, error) {
	l.Path = "" // it belongs to the objects, not to the bucket
	p.mu.Lock()
	defer p.mu.Unlock()
	if bucket, ok := p.buckets[l]; ok {
		return bucket, nil
	}
	url := l.Scheme + "://" + l.Bucket
	if l.Query != "" {
		url += "?" + l.Query
	}
	bucket, err := blob.OpenBucket(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("open %s://%s: %w", l.Scheme, l.Bucket, err)
	}
	p.buckets[l] = bucket
	return bucket, nil
}

// Write writes a file to a location, completely or not at all.
func (p *Locations) Write(ctx context.Context, target policy.ExportTarget, name string, body []byte) error {
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

func (p *Locations) create(ctx context.Context, target policy.ExportTarget, name string) (*File, error) {
	if target.Location.Scheme == "file" {
		return createLocalFile(target.Location.Path, path.Join(target.Path, name))
	}
	bucket, err := p.bucket(ctx, target.Location)
	if err != nil {
		return nil, err
	}
	return createObject(ctx, bucket, path.Join(target.Location.Path, target.Path, name))
}

// Close closes all buckets.
func (p *Locations) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, bucket := range p.buckets {
		_ = bucket.Close()
	}
	clear(p.buckets)
}

// ErrorText returns the error of writing a file in plain words.
func ErrorText(err error) string {
	var file *fs.PathError
	var link *os.LinkError
	var azure *azcore.ResponseError
	var s3 interface {
		ErrorCode() string
		ErrorMessage() string
	}
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
