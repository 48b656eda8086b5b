package docs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A question that the parser misses would neither be tested nor measured.
func TestEveryQuestionIsFound(t *testing.T) {
	t.Parallel()
	all := Questions()
	require.Len(t, all, strings.Count(questions, ";\n"))
	require.Len(t, all, 20)
	names := map[string]bool{}
	for i, q := range all {
		require.Equal(t, i+1, q.Number)
		require.Regexp(t, "^[a-z-]+$", q.Name)
		require.False(t, names[q.Name], "%s twice", q.Name)
		names[q.Name] = true
		require.Regexp(t, "^(select|with) ", q.SQL)
		require.NotContains(t, q.SQL, ";", "%s is one statement", q.Name)
		require.NotContains(t, q.SQL, "--", "%s has no comments", q.Name)
		require.NotContains(t, q.SQL, "postrider_internal", "%s queries the contract", q.Name)
		require.Regexp(t, `^[A-Z].*\?$`, q.Title)
	}
	latency, _ := Find("latency")
	require.Equal(t, "The 95th percentile; NULL is more than a minute.", latency.Note)
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

func TestTemplate(t *testing.T) {
	t.Parallel()
	text, names := Question{SQL: "select 'order-42', 'orders', 'order-42'"}.Template()
	require.Equal(t, "select $2, $1, $2", text)
	require.Equal(t, []string{"topic", "event-id"}, names)
}
