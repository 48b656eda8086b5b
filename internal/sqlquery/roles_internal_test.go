package sqlquery

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// A name is cut to PostgreSQL's 63 bytes, between two characters, and differs from that of any other database.
func TestRoleNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, "postrider_query_shop_1", roleName("shop", 1))
	seen := map[string]bool{}
	for _, long := range []string{strings.Repeat("x", 62), "üx" + strings.Repeat("é", 29), strings.Repeat("é", 30), "x" +
		strings.Repeat("日", 20)} {
		for _, database := range []string{long + "1", long + "2"} {
			name := roleName(database, Logins)
			require.True(t, utf8.ValidString(name), name)
			require.LessOrEqual(t, len(name), 63)
			require.False(t, seen[name], name)
			seen[name] = true
		}
	}
}
