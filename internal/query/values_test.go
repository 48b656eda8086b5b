package query_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/query"
	"postrider/internal/testnode"
)

// A value is a text or a number at any place, not the name of a member.
func TestHasValue(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	for value, bodies := range map[string]map[string]bool{
		"42": {
			`{"data":{"n":42}}`: true, `[["42"]]`: true, `{"n":42.0}`: true, `{"42":1}`: false, `{"n":"x42"}`: false,
		},
		"C-7":                   {`{"a":[1,{"b":"C-7"}]}`: true, `{"a":"C-77"}`: false},
		"null":                  {`{"a":null}`: false, `{"a":"null"}`: true},
		"1e999":                 {`{"a":1}`: false, `{"a":"1e999"}`: true},
		"1e99999999":            {`{"a":1}`: false, `{"a":"1e99999999"}`: true},
		`"} || {"`:              {`{"a":1}`: false, `{"a":"\"} || {\""}`: true},
		"-1.5E1":                {`{"a":-15}`: true},
		"1,\"text\":\"replaced": {`{"a":"replaced"}`: false, `{"a":1}`: false},
	} {
		for body, want := range bodies {
			var has bool
			require.NoError(t, tn.Pool.QueryRow(t.Context(), "SELECT postrider.has_value($1, $2)", body, value).Scan(&has))
			require.Equal(t, want, has, "%s in %s", value, body)
		}
	}
}

// A number is found in the form of the publisher: 5.0 finds 5, and 12.5 finds 12.50.
func TestValueSearchComparesNumbers(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Publish(t, "orders", "number", 2)
	tn.Exec(t, `UPDATE postrider_internal.events SET body =
		convert_to('{"total":5,"rate":' || CASE event_id WHEN 'number-1' THEN '12.50' ELSE '7' END || '}', 'UTF8')`)
	for value, want := range map[string]int{"5": 2, "5.0": 2, "12.5": 1, "12.500": 1, "7.25": 0} {
		page, err := tn.System.Reader.ReadEvents(t.Context(), query.EventFilter{Data: value}, query.Turn[uuid.UUID]{Limit: 5})
		require.NoError(t, err)
		require.Len(t, page.Rows, want, value)
	}
}

// A search for a value adapts to large bodies: it returns what it found before a step that takes too long.
func TestValueSearchEndsBeforeALongStep(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Publish(t, "orders", "slow", 60)
	tn.Publish(t, "orders", "fast", 51)
	tn.Exec(t, `CREATE OR REPLACE FUNCTION postrider.try_jsonb(body bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
		BEGIN
		    PERFORM pg_sleep(CASE WHEN position('slow'::bytea IN body) > 0 THEN 1 ELSE 0 END);
		    RETURN convert_from(body, 'UTF8')::jsonb;
		END $$`)
	tn.Exec(t, `UPDATE postrider_internal.events
		SET body = replace(convert_from(body, 'UTF8'), 'slow', 'fast-1 slow')::bytea
		WHERE event_id LIKE 'slow%'`)
	page, err := tn.System.Reader.ReadEvents(t.Context(), query.EventFilter{Data: "fast-1", States: true},
		query.Turn[uuid.UUID]{Limit: 50})
	require.NoError(t, err)
	require.Len(t, page.Rows, 1)
	require.NotNil(t, page.SearchedTo)
	require.Equal(t, 51, tn.Events(t, "id >= $1", *page.SearchedTo), "the next page continues there")
}
