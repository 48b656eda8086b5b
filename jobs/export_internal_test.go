package jobs

import (
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// The credentials of a location may stand in its URL's query, and errors repeat URLs.
func TestExportErrorsTellNoQuery(t *testing.T) {
	t.Parallel()
	const planted = "planted-secret"
	err := fmt.Errorf("write to azblob://dead: %w", &url.Error{Op: "Put", URL: "https://acct.blob.core.windows.net/dead/a%20b.json?sv=1&sig=" + planted, Err: errors.New("context deadline exceeded")})
	require.Contains(t, err.Error(), planted)
	require.Equal(t, `write to azblob://dead: Put "https://acct.blob.core.windows.net/dead/a%20b.json?…": context deadline exceeded`, withoutQueries(err.Error()))
	for _, said := range []string{"", "no space left on device?", "GET https://a/b: 403", "https://a?", "s3://b/c?region=x&y=" + planted + " twice https://d/e?z=" + planted} {
		require.NotContains(t, withoutQueries(said), planted)
	}
	require.Equal(t, "no space left on device?", withoutQueries("no space left on device?"))
}
