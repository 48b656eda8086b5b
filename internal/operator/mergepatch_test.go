package operator_test

import (
	"fmt"
	"strings"
	"testing"

	"postrider/internal/testnode"

	"github.com/stretchr/testify/require"
)

// The edit of an event that is nested as deeply as an event may be fits the default stack of PostgreSQL, deep and wide.
func TestMergePatchOfADeepEvent(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	require.Equal(t, "2MB", tn.Text(t, "SHOW max_stack_depth"))
	for _, members := range []int{0, 20} {
		var wide strings.Builder
		for i := range members {
			fmt.Fprintf(&wide, `"m%d":1,`, i)
		}
		nested := func(value string) string {
			return strings.Repeat("{"+wide.String()+`"a":`, 256) + value + strings.Repeat("}", 256)
		}
		require.Equal(t, 1, tn.Count(t, "SELECT count(*) WHERE postrider_internal.merge_patch($1, $2) = $3::jsonb",
			nested("1"), nested("2"), strings.Repeat(`{"a":`, 256)+"2"+strings.Repeat("}", 256)))
	}
}
