package export

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://
	_ "gocloud.dev/blob/s3blob"    // s3://

	"postrider/policy"
)

// File is a file that is being written to an external location. It exists, complete, once Commit has succeeded, and not
// before.
type File struct {
	io.Writer
	// Commit ends the file. Abort removes what was written, as far as possible; after Commit it does nothing.
	Commit func() error
	Abort  func()
}

// CreateFile begins a file in a location, and replaces one of that name. The connection to a bucket stays open until
// the process ends.
func CreateFile(ctx context.Context, target policy.ExportTarget, name string) (*File, error) {
	return NewLocations(policy.ExportLocations{}).create(ctx, target, name)
}

// createLocalFile writes beside the file and then renames it, so a reader finds it complete or not at all. A root keeps
// it in its directory, whatever names and symbolic links say. The directory must exist: a missing one may be a disk
// that is not mounted.
func createLocalFile(directory, name string) (*File, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	temporary := path.Join(path.Dir(name), "."+path.Base(name)+"."+rand.Text()[:8]+".part")
	file, err := openBelow(root, temporary)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	var once sync.Once
	end := func(last func() error) (err error) {
		once.Do(func() { err = errors.Join(last(), root.Close()) })
		return err
	}
	discard := func(err error) error { return errors.Join(err, root.Remove(temporary)) }
	commit := func() error {
		if err := errors.Join(file.Sync(), file.Close()); err != nil {
			return discard(err)
		}
		if err := root.Rename(temporary, name); err != nil {
			return discard(err)
		}
		return syncDirectory(root, path.Dir(name))
	}
	return &File{Writer: file, Commit: func() error { return end(commit) }, Abort: func() {
		_ = end(func() error { return discard(file.Close()) })
	}}, nil
}

// Dead letters are the publisher's data: other users of the machine need not read them.
const (
	directoryMode = 0o750
	fileMode      = 0o640
)

func openBelow(root *os.Root, name string) (*os.File, error) {
	if err := root.MkdirAll(path.Dir(name), directoryMode); err != nil {
		return nil, err
	}
	return root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
}

// syncDirectory makes a rename survive a power failure.
func syncDirectory(root *os.Root, name string) error {
	directory, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

// openBucket opens a bucket as its operator configured it, with the credentials that the library of the cloud finds.
func openBucket(ctx context.Context, l policy.Location) (*blob.Bucket, error) {
	url := l.Scheme + "://" + l.Bucket
	if l.Query != "" {
		url += "?" + l.Query
	}
	bucket, err := blob.OpenBucket(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("open %s://%s: %w", l.Scheme, l.Bucket, err)
	}
	return bucket, nil
}

// createObject begins an object. One whose context ends before Close is not written.
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
	var once sync.Once
	commit := func() (err error) {
		once.Do(func() { err = w.Close(); cancel() })
		return err
	}
	abort := func() { once.Do(func() { cancel(); _ = w.Close() }) }
	return &File{Writer: w, Commit: commit, Abort: abort}, nil
}

// Locations keeps the buckets open that a node writes to: finding the credentials of one takes a second.
type Locations struct {
	Locations policy.ExportLocations

	mu      sync.Mutex
	buckets map[policy.Location]*blob.Bucket
}

// NewLocations returns Locations with no open bucket. Files are written below the locations that the server allows.
func NewLocations(locations policy.ExportLocations) *Locations {
	return &Locations{Locations: locations, buckets: map[policy.Location]*blob.Bucket{}}
}

func (p *Locations) bucket(ctx context.Context, l policy.Location) (*blob.Bucket, error) {
	l.Path = "" // it belongs to the objects, not to the bucket
	p.mu.Lock()
	defer p.mu.Unlock()
	if bucket, ok := p.buckets[l]; ok {
		return bucket, nil
	}
	bucket, err := openBucket(ctx, l)
	if err == nil {
		p.buckets[l] = bucket
	}
	return bucket, err
}

// Write writes a file to a place, completely or not at all.
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
