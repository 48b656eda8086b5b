package export

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/encrypt"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"postrider/jobs/endpoint"
)

const (
	// tries is how often one request to a bucket is tried: with some retry policies, an export has only one try.
	tries = 3
	// retryPause is the first pause between them, in both libraries.
	retryPause = 200 * time.Millisecond
)

type s3Bucket struct {
	name    string
	client  *minio.Client
	options minio.PutObjectOptions
	// credentials are nil for anonymous requests.
	credentials *credentials.Credentials
	http        *http.Client
}

func plainError(text string) error {
	return &endpoint.PlainError{Text: text, Cause: errors.New(text)}
}

// openS3 sends no request to the bucket: the credentials need only the right to write.
func openS3(ctx context.Context, name string, query url.Values, client *http.Client) (bucket, error) {
	if err := s3utils.CheckValidBucketName(name); err != nil {
		return nil, plainError("the location names no bucket of S3: " + err.Error())
	}
	host, options := "s3.amazonaws.com", &minio.Options{
		Secure: true, Transport: client.Transport, MaxRetries: tries,
		Region: cmp.Or(query.Get("region"), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
	}
	if text := query.Get("endpoint"); text != "" {
		server, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		host, options.Secure = server.Host, server.Scheme == "https"
		options.BucketLookup = minio.BucketLookupDNS
		if _, err := netip.ParseAddr(server.Hostname()); err == nil || strings.Contains(name, ".") {
			options.BucketLookup = minio.BucketLookupPath
		}
		options.Region = cmp.Or(options.Region, "us-east-1")
	}
	if options.Region == "" {
		return nil, plainError("the region of the bucket is unknown: set region=… in the location, or AWS_REGION")
	}
	if query.Get("use_path_style") == "true" {
		options.BucketLookup = minio.BucketLookupPath
	}
	b := &s3Bucket{name: name, http: client, options: minio.PutObjectOptions{
		SendContentMd5: true, // buckets with object lock require a checksum
		PartSize:       blockSize, ServerSideEncryption: s3Encryption(query),
	}}
	options.Creds = credentials.NewStatic("", "", "", credentials.SignatureAnonymous)
	if query.Get("anonymous") != "true" {
		b.credentials = s3Credentials(ctx, query.Get("profile"), client)
		options.Creds = b.credentials
	}
	var err error
	if b.client, err = minio.New(host, options); err != nil {
		return nil, err
	}
	b.client.SetS3EnableDualstack(query.Get("dualstack") == "true")
	if query.Get("accelerate") == "true" {
		b.client.SetS3TransferAccelerate("s3-accelerate.amazonaws.com")
	}
	return b, nil
}

// s3Encryption is the server-side encryption of objects; nil is the bucket's own.
func s3Encryption(query url.Values) encrypt.ServerSide {
	key := query.Get("kmskeyid")
	if key != "" || query.Get("ssetype") == "aws:kms" {
		kms, _ := encrypt.NewSSEKMS(key, nil) // an error is about the context only
		return kms
	}
	if query.Get("ssetype") != "" {
		return encrypt.NewSSE()
	}
	return nil
}

// s3Credentials are the first that the machine has, in the order of Amazon's libraries. minio's own chain would send
// anonymous requests if none of them can be read.
func s3Credentials(ctx context.Context, profile string, client *http.Client) *credentials.Credentials {
	file := &credentials.FileAWSCredentials{Profile: profile}
	role := credentials.New(&credentials.IAM{Client: client})
	switch {
	case profile != "":
		return credentials.New(file)
	case os.Getenv("AWS_ACCESS_KEY_ID") != "":
		return credentials.NewEnvAWS()
	case os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		return role
	case os.Getenv("AWS_PROFILE") != "":
		return credentials.New(file)
	}
	found, err := file.RetrieveWithCredContext(&credentials.CredContext{Client: client, Context: ctx})
	if err == nil && found.AccessKeyID != "" {
		return credentials.New(file)
	}
	return role
}

func (b *s3Bucket) put(ctx context.Context, key string, body io.Reader, size int64) error {
	if err := b.checkCredentials(ctx); err != nil {
		return err
	}
	if size < 0 { // a small object needs one request, not three
		first, err := io.ReadAll(io.LimitReader(body, blockSize))
		if err != nil {
			return err
		}
		if body = io.MultiReader(bytes.NewReader(first), body); len(first) < blockSize {
			body, size = bytes.NewReader(first), int64(len(first))
		}
	}
	options := b.options
	options.ContentType = contentType(key)
	_, err := b.client.PutObject(ctx, b.name, key, body, size, options)
	var response minio.ErrorResponse
	if errors.As(err, &response) {
		return rejected(err, "", response.Code, response.Message)
	}
	return err
}

// checkCredentials finds the credentials. They are kept until they expire.
func (b *s3Bucket) checkCredentials(ctx context.Context) error {
	if b.credentials == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	found, err := b.credentials.GetWithContext(&credentials.CredContext{Client: b.http, Context: ctx})
	if err == nil && found.AccessKeyID != "" && found.SecretAccessKey != "" {
		return nil
	}
	err = cmp.Or(err, errors.New("no key"))
	return &endpoint.PlainError{Cause: err, Text: "no credentials for S3 (" + endpoint.ErrorText(err) +
		"): set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile of the shared file, or a role of this machine"}
}
