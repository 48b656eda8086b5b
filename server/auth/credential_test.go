package auth

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

// Publishes with an access key or a signature need no query and no allocation for API keys.
func TestAccessKeysAreNotLookedUp(t *testing.T) { //nolint:paralleltest // it counts allocations
	s := &Authenticator{} // without access: a lookup would panic
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/topics/orders/api/events", http.NoBody)
	require.NoError(t, err)
	for header, shown := range map[string]string{"Aeg-Sas-Key": "aGVsbG8=", "Authorization": "Bearer aGVsbG8="} {
		r.Header = http.Header{header: {shown}}
		opened, topic := false, &catalog.Topic{Name: "orders"}
		allocated := testing.AllocsPerRun(100, func() {
			c, err := s.Credential(r)
			if err == nil {
				err = s.LookUp(r.Context(), &c, "orders")
			}
			opened = err != nil || c.Opens(topic)
		})
		require.Zero(t, allocated, header)
		require.False(t, opened)
	}
}

// A key opens a topic by its whole digest, as the first or the second key of the topic.
func TestKeysAreComparedAsDigests(t *testing.T) {
	t.Parallel()
	const key = "cG9zdHJpZGVyLWEta2V5LWZvci1hLXRlc3Qtb2YtdGltZSE="
	sum, other := DigestOf(key), DigestOf("another")
	topic := &catalog.Topic{Key1Hash: sum[:], Key2Hash: other[:]}
	for shown, opens := range map[string]bool{
		key: true, "another": true, "X" + key[1:]: false, key[:len(key)-1] + "X": false, key[:20]: false, "": false,
		string(sum[:]): false,
	} {
		c := Credential{Digest: DigestOf(shown)}
		require.Equal(t, opens, c.Opens(topic), shown)
	}
	c := Credential{Digest: DigestOf("")}
	require.False(t, c.Opens(&catalog.Topic{}), "a topic without keys")
}

// No behavior shows that rejecting a secret takes as long whether its first or its last byte is wrong: only
// crypto/subtle compares digests of keys, signatures, and the admin token.
func TestSecretsAreComparedInConstantTime(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	compared := 0
	for _, name := range append(files, "../../internal/catalog/topickey.go", "../../web/signin.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NotRegexp(t, `(bytes|slices)\.(Equal|Compare)\(|(\.equals|SignedWith)\([^)]*\)[^|&\n]*(\|\||&&)`,
			string(text), name)
		compared += strings.Count(string(text), "subtle.ConstantTimeCompare(")
	}
	require.Equal(t, 3, compared)
}
