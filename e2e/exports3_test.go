package e2e

import (
	"bytes"
	"io"
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
	"postrider/jobs/export"
)

// A file of unknown size is an object only if it is complete. A large one has several parts.
func TestS3ObjectsOfUnknownSize(t *testing.T) {
	t.Parallel()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("dead"))
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	location, err := endpointconf.ParseLocation("s3://dead/in?region=us-east-1&anonymous=true&endpoint=" + server.URL)
	require.NoError(t, err)
	const part = 8 << 20
	want := bytes.Repeat([]byte("0123456789abcdef"), (part+1024)/16)
	for _, size := range []int{0, 10, len(want)} {
		create := func(name string) *export.File {
			f, err := export.CreateFile(t.Context(), endpointconf.ExportTarget{Location: location}, name)
			require.NoError(t, err)
			_, err = f.Write(want[:size])
			require.NoError(t, err)
			return f
		}
		complete := create("x.ndjson")
		require.NoError(t, complete.Commit())
		complete.Abort()
		create("half.ndjson").Abort()
		list, err := backend.ListBucket("dead", nil, gofakes3.ListBucketPage{})
		require.NoError(t, err)
		require.Len(t, list.Contents, 1)
		object, err := backend.GetObject("dead", "in/x.ndjson", nil)
		require.NoError(t, err)
		body, err := io.ReadAll(object.Contents)
		require.NoError(t, err)
		require.NoError(t, object.Contents.Close())
		require.Equal(t, "application/x-ndjson", object.Metadata["Content-Type"])
		require.True(t, bytes.Equal(want[:size], body))
	}
}
