package docs

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A fence that the expression misses would neither be tested nor measured.
func TestEveryQuestionOfThePageIsFound(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("reference/sql.md")
	require.NoError(t, err)
	require.Equal(t, string(raw), page)
	questions := Questions()
	require.Len(t, questions, len(regexp.MustCompile(`(?m)^### \d`).FindAllString(page, -1)))
	require.Len(t, questions, 20)
	names := map[string]bool{}
	for i, q := range questions {
		require.Contains(t, page, fmt.Sprintf("### %d `%s` %s\n", i+1, q.Name, q.Title))
		require.False(t, names[q.Name], "%s twice", q.Name)
		names[q.Name] = true
		require.NotEmpty(t, q.SQL)
		require.NotContains(t, q.SQL, ";", "%s is one statement", q.Name)
		require.NotContains(t, q.SQL, "postrider_internal", "%s asks the contract", q.Name)
		require.True(t, strings.HasSuffix(q.Title, "?"), q.Title)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	for _, q := range Questions() {
		for _, by := range []string{q.Name, fmt.Sprint(q.Number)} {
			found, ok := Find(by)
			require.True(t, ok, by)
			require.Equal(t, q, found)
		}
	}
	for _, by := range []string{"", "0", "21", "nothing", "01"} {
		_, ok := Find(by)
		require.False(t, ok, by)
	}
}

func TestWith(t *testing.T) {
	t.Parallel()
	q := Question{SQL: "select 'orders', 'billing', 'order-42', 'orders-2', orders"}
	require.Equal(t, []string{"topic", "subscription", "event-id"}, q.About())
	require.Equal(t, q.SQL, q.With(nil))
	require.Equal(t, "select 'billing', 'it''s', 'order-42', 'orders-2', orders",
		q.With(map[string]string{"topic": "billing", "subscription": "it's"}), "replaced once, and quoted")
	require.Equal(t, `select 'orders', 'billing',  E'\\''; drop', 'orders-2', orders`,
		q.With(map[string]string{"event-id": `\'; drop`}))
	require.Empty(t, Question{SQL: "select 1"}.About())
}
