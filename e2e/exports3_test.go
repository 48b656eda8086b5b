package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
	"postrider/jobs/export"
)

// s3Server is a server with S3's protocol.
type s3Server struct {
	t       *testing.T
	backend *s3mem.Backend
	query   string // of a location
}

// newS3 starts a server with bucket "dead".
func newS3(t *testing.T) *s3Server {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("dead"))
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	return &s3Server{t, backend, "?region=us-east-1&anonymous=true&endpoint=" + server.URL}
}

func (s *s3Server) keys() (keys []string) {
	s.t.Helper()
	list, err := s.backend.ListBucket("dead", nil, gofakes3.ListBucketPage{})
	require.NoError(s.t, err)
	for _, content := range list.Contents {
		keys = append(keys, content.Key)
	}
	return keys
}

func (s *s3Server) object(key string) (contentType string, body []byte) {
	s.t.Helper()
	object, err := s.backend.GetObject("dead", key, nil)
	require.NoError(s.t, err)
	defer object.Contents.Close()
	body, err = io.ReadAll(object.Contents)
	require.NoError(s.t, err)
	return object.Metadata["Content-Type"], body
}

// A node and the command line write the same records to S3.
func TestDeadLettersAreExportedToS3(t *testing.T) {
	t.Parallel()
	s := newS3(t)
	db := migratedDatabase(t)
	n := startNode(t, db, "--dead-letter-location=s3://dead/letters"+s.query)
	buried(t, db, n,
		`,"deadLetterDestination":{"endpointType":"Blob","properties":{"url":"s3://dead/letters/of-mine"}}`,
		order("1", 5))
	db.exec("UPDATE postrider_internal.dead_letters SET export_due_at = now()")
	eventually(t, "it is exported",
		db.atLeast(1, "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'exported'"))
	keys := s.keys()
	require.Len(t, keys, 1)
	require.Regexp(t, `^letters/of-mine/BILLING/\d{4}/\d{1,2}/\d{1,2}/\d{1,2}/[0-9a-f-]{36}\.json$`, keys[0])
	require.Equal(t, "s3://dead/"+keys[0], one[string](db, "SELECT export_location FROM postrider.dead_letters"))
	contentType, byNode := s.object(keys[0])
	require.Equal(t, "application/json", contentType)
	var records []map[string]any
	require.NoError(t, json.Unmarshal(byNode, &records))
	require.Len(t, records, 1)
	require.Equal(t, "UndeliverableDueToHttpBadRequest", records[0]["deadletterreason"])

	r := postrider(t, n.cliEnv(), "deadletter", "export", "-o", "s3://dead/by%20hand+100%25.ndjson"+s.query)
	require.Zero(t, r.code, r.stderr)
	_, byHand := s.object("by hand+100%.ndjson")
	require.JSONEq(t, string(byNode), "["+string(byHand)+"]")
}

// A file of unknown size is an object only if it is complete. A large one has several parts.
func TestS3ObjectsOfUnknownSize(t *testing.T) {
	t.Parallel()
	s := newS3(t)
	location, err := endpointconf.ParseLocation("s3://dead/in" + s.query)
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
		require.Equal(t, []string{"in/x.ndjson"}, s.keys())
		contentType, body := s.object("in/x.ndjson")
		require.Equal(t, "application/x-ndjson", contentType)
		require.True(t, bytes.Equal(want[:size], body))
	}
}
