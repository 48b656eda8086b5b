package query_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
)

// searchable stores dead letters whose event ids are their keys.
func searchable(t *testing.T, data map[string]string) *testnode.Node {
	t.Helper()
	tn, _ := testnode.ManyDeadLetters(t, 1)
	for id, event := range data {
		schema := "EventGridSchema"
		if strings.HasPrefix(id, "custom") {
			schema = "CustomEventSchema"
		}
		tn.CopyDeadLetters(t, `jsonb_build_object('topic', 'shop', 'reason', 'None', 'event_id', $1::text,
			'event_type', 'Order.Paid', 'subject', 'invoices/' || $1, 'schema', $2::text,
			'last_error', CASE WHEN $1 = 'b' THEN 'unknown currency' END, 'last_response', CASE WHEN $1 = 'a'
			    THEN 'Refund 50%'::bytea END, 'body', convert_to($3, 'UTF8'))`, 1, id, schema, event)
	}
	return tn
}

var searchData = map[string]string{
	"a": `{"data":{"order":{"id":42,"at":"2026-11-20T09:00:00Z","big":12345678901234567890},"items":[{"sku":"A"},
		{"sku":"B"}],"a.b":{"0":"key"},"tags":["x","y"],"none":null}}`,
	"b":        `{"data":{"order":{"id":42.5,"at":"2026-11-21T09:00:00Z"},"items":[{"sku":"B"}],"ok":true}}`,
	"c":        `{"data":{"order":{"id":"42"},"items":{"0":{"sku":"A"}},"tags":"x"}}`,
	"custom":   `{"order":{"id":7},"data":{"order":{"id":42}}}`,
	"base64":   `{"data_base64":"eyJvcmRlciI6eyJpZCI6NDJ9fQ=="}`,
	"unheld":   `{"data":{"order":{"id":42},"text":"\u0000"}}`,
	"cascalar": `{"data":"[42]"}`,
	"letters":  `{"data":{"up":"ÄÖÜ STRASSE ΟΔΟΣ ЖУК","low":"äöü straße οδος жук"}}`,
}

func TestSearchByContent(t *testing.T) {
	t.Parallel()
	tn := searchable(t, searchData)
	for search, want := range map[string]string{
		`data.order.id = 42`:                                    "a",
		`data.order.id = 42.0`:                                  "a",
		`data.order.id = "42"`:                                  "c",
		`data.order.id = 7`:                                     "custom",
		`data.data.order.id = 42`:                               "custom",
		`data.order.big = 12345678901234567890`:                 "a",
		`data.order.big = 12345678901234567891`:                 "",
		`data.order.id != 42`:                                   "b c custom",
		`data.order.id > 42`:                                    "b",
		`data.order.id <= 42`:                                   "a custom",
		`data.order.at >= 2026-11-21T00:00:00Z`:                 "b",
		`data.items.0.sku = A`:                                  "a",
		`data.items.1.sku = "B"`:                                "a",
		`data.items."0".sku = A`:                                "c",
		`data.items.0.sku : b`:                                  "b",
		`data."a.b"."0" = key`:                                  "a",
		`data.tags : ["x"]`:                                     "a",
		`data.tags = ["x"]`:                                     "",
		`data.tags = ["x","y"]`:                                 "a",
		`data : {"items":[{"sku":"B"}]}`:                        "a b",
		`data.order = {"id":42.50,"at":"2026-11-21T09:00:00Z"}`: "b",
		`data.none = null`:                                      "a",
		`data.none != null`:                                     "",
		`data.ok = true`:                                        "b",
		`data = "[42]"`:                                         "cascalar",
		`data.order.id ~ "^42$"`:                                "a c",
		`data.order.id !~ "^42$"`:                               "b custom",
		`error ~ "curr[a-z]+y"`:                                 "b",
		`error !~ "curr"`:                                       "",
		`response : "refund 50%"`:                               "a",
		`refund`:                                                "a",
		`CURRENCY`:                                              "b",
		`refund currency`:                                       "",
		`subject : INVOICES/c`:                                  "c cascalar custom",
		`type = Order.Paid AND id = b`:                          "b",
		`type = order.paid`:                                     "",
		`source = ""`:                                           "",
		`id > c id < d`:                                         "cascalar custom",
		`data.order.id = 42 response : x`:                       "",
		`data.up : "äöü straße οδος жук"`:                       "letters",
		`data.low : "ÄÖÜ STRASSE ΟΔΟΣ ЖУК"`:                     "letters",
		`data.low ~ "(?i)^ÄÖÜ"`:                                 "letters",
		`data.up ~ "^\w+ \w+ [[:upper:]]+ ЖУК$"`:                "letters",
		`data.order.id < 1e131071`:                              "a b custom",
		`data.order.id > -1e131071 data.order.id != 1e-16383`:   "a b custom",
		`data.order.id = 42 refund`:                             "a",
		`data.order.id = 42 data.items.0.sku ~ ^A`:              "a",
	} {
		filter := &query.DeadLetterFilter{Search: search, Topic: new("shop")}
		found, err := tn.System.Reader.ListDeadLetters(t.Context(), filter, query.DeadLetterPlace{}, 10)
		require.NoError(t, err, search)
		require.Nil(t, found.SearchedTo, search)
		got := map[string]bool{}
		for _, l := range found.Rows {
			got[l.EventID] = true
		}
		expected := map[string]bool{}
		for id := range strings.FieldsSeq(want) {
			expected[id] = true
		}
		require.Equal(t, expected, got, search)
		n, err := tn.System.Reader.CountDeadLetters(t.Context(), filter)
		require.NoError(t, err, search)
		require.Equal(t, query.Matched{Matched: int64(len(expected))}, n, search)
		page, err := tn.System.Reader.ReadDeadLetters(t.Context(), filter, query.Turn[query.DeadLetterPlace]{Limit: 5}, nil)
		require.NoError(t, err, search)
		require.Len(t, page.Rows, len(expected), search)
		require.EqualValues(t, len(expected), page.Total, search)
		// The SQL that the page shows finds the same.
		require.Equal(t, len(expected), tn.Rows(t, "dead_letters", "topic = 'shop' AND "+*page.Condition), search)
	}
	require.Equal(t, "base64 cascalar unheld", tn.Text(t, `SELECT string_agg(event_id, ' ' ORDER BY event_id)
		FROM postrider.dead_letters WHERE topic = 'shop' AND jsonb_typeof(data) IS DISTINCT FROM 'object'`))
}

// The hint of a rejected filter names the members that a filter may have.
func TestFilterHintNamesTheMembers(t *testing.T) {
	t.Parallel()
	tn := searchable(t, nil)
	_, err := tn.Pool.Exec(t.Context(), `SELECT postrider.count_dead_letters('{"x": 1}')`)
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	members := regexp.MustCompile(`[a-z_]+`).FindAllString(strings.TrimPrefix(pgErr.Hint, "A filter may have "), -1)
	members = slices.DeleteFunc(members, func(m string) bool { return m == "and" })
	require.Len(t, members, 16)
	for _, m := range members {
		require.Contains(t, tn.RejectedBy(t, "SELECT postrider.count_dead_letters($1)", `{"`+m+`": true}`),
			"filter."+m+" must be")
	}
}

func TestSearchRejects(t *testing.T) {
	t.Parallel()
	tn := searchable(t, nil)
	condition := func(text string) string { return `{"match": [` + text + `]}` }
	long := strings.Repeat("a", 1001)
	for filter, want := range map[string]string{
		`{"match": {}}`: "filter.match must be an array, is an object",
		`{"match": []}`: "filter.match must have between 1 and 20 conditions, has 0",
		condition(`1`):  "filter.match[0] must be an object, is a number",
		condition(`{"field": "id", "op": "=", "value": "1"}, {"field": "id", "op": "=", "value": 1}`): "" +
			"filter.match[1].value must be a string, is a number",
		condition(`{"field": "id", "op": "=", "value": "1", "not": true}`): "" +
			"filter.match[0].not is no member of a condition",
		condition(`{"op": "=", "value": "1"}`): "filter.match[0].field is required",
		condition(`{"field": "id", "op": "=="}`): "" +
			"filter.match[0].op must be one of = != < <= > >= ~ !~ :, is ==",
		condition(`{"field": "id", "op": "="}`): "filter.match[0].value is required",
		condition(`{"field": "body", "op": "=", "value": "1"}`): "" +
			"filter.match[0].field must be data.<path>, subject, type",
		condition(`{"field": "data..x", "op": "=", "value": "1"}`): "" +
			"filter.match[0].field must be a path such as data.order.id",
		condition(`{"field": "data.x", "op": "<", "value": true}`): "" +
			"filter.match[0].value must be a number or a string, is a boolean",
		condition(`{"field": "data.x", "op": "~", "value": 1}`): "filter.match[0].value must be a string, is a number",
		condition(`{"field": "error", "op": "~", "value": "(a"}`): "" +
			"filter.match[0].value is not a valid regular expression: (a: ",
		condition(`{"field": "error", "op": "~", "value": "(a)\\1"}`): "" +
			"filter.match[0].value must not have a back reference",
		condition(`{"field": "data.x", "op": "!~", "value": "[[:no:]]"}`): "" +
			"filter.match[0].value is not a valid regular expression",
		condition(fmt.Sprintf(`{"field": "error", "op": "~", "value": %q}`, long)): "" +
			"filter.match[0].value must have at most 1000 characters, has 1001",
		condition(fmt.Sprintf(`{"field": "data.x", "op": "=", "value": %s1%s}`, strings.Repeat("[", 257),
			strings.Repeat("]", 257))): "filter.match[0].value must not nest deeper than 256 levels",
	} {
		require.Contains(t, tn.RejectedBy(t, "SELECT postrider.count_dead_letters($1)", filter), want)
	}
	for search, want := range map[string]string{
		"error ~ (a":    "search at character 9: error ~: the value is not a valid regular expression: (a: ",
		"größe id ~ *":  "search at character 12: id ~: the value is not a valid regular expression: *: ",
		`error ~ (a)\1`: "search at character 9: error ~: the value must not have a back reference",
		"data.x < true": "search at character 10: data.x <: the value must be a number or a string, is a boolean",
		"data." + long + " = 1": "search at character 1010: data." + long +
			" =: the field must have at most 1000 characters, has 1006",
	} {
		filter := &query.DeadLetterFilter{Search: search}
		_, err := tn.System.Reader.ListDeadLetters(t.Context(), filter, query.DeadLetterPlace{}, 1)
		require.ErrorIs(t, err, postgres.ErrInvalid)
		require.ErrorContains(t, err, want)
		_, err = tn.System.Operator.OnDeadLetters(t.Context(), filter, &operator.Action{Kind: operator.Purge})
		require.ErrorContains(t, err, want)
	}
	for _, value := range []string{"1e131073", `"\u0000"`, `"\ud800"`} {
		filter := &query.DeadLetterFilter{Match: []query.Condition{{Field: "data", Op: ":", Value: json.RawMessage(value)}}}
		_, err := tn.System.Reader.CountDeadLetters(t.Context(), filter)
		require.ErrorIs(t, err, postgres.ErrInvalid, value)
		_, err = tn.System.Operator.OnDeadLetters(t.Context(), filter, &operator.Action{Kind: operator.Purge})
		require.ErrorIs(t, err, postgres.ErrInvalid, value)
	}
}

// A value that is rare, frequent among old dead letters, or frequent everywhere is listed in order, from both ends, and
// page by page.
func TestSearchListsInOrder(t *testing.T) {
	t.Parallel()
	tn := searchable(t, nil)
	tn.CopyDeadLetters(t, `jsonb_build_object('dead_lettered_at', now() - i * interval '1 second',
		'body', convert_to(format('{"data":{"n":%s,"old":%s,"odd":%s}}', i, (i > 2500)::text, i % 2), 'UTF8'))`, 4000)
	tn.Exec(t, "VACUUM ANALYZE postrider_internal.dead_letters")
	for search, want := range map[string]int{
		"data.n = 3999": 1, "data.n = 3": 1, "data.old = true": 1500, "data.odd = 1": 2000, "data.n >= 3001": 1000,
		"data.old = true data.odd = 0": 750,
	} {
		filter := &query.DeadLetterFilter{Search: search}
		var listed []uuid.UUID
		for place := (query.DeadLetterPlace{}); ; {
			found, err := tn.System.Reader.ListDeadLetters(t.Context(), filter, place, 400)
			require.NoError(t, err, search)
			for _, l := range found.Rows {
				place, listed = l.Place(), append(listed, l.DeadLetterID)
			}
			if len(found.Rows) < 400 && found.SearchedTo == nil {
				break
			}
		}
		require.Len(t, listed, want, search)
		ordered := testnode.Value[[]uuid.UUID](t, tn, `SELECT array_agg(id ORDER BY dead_lettered_at DESC, id DESC)
			FROM postrider_internal.dead_letters WHERE id = ANY ($1)`, listed)
		require.Equal(t, ordered, listed, search)
		oldest := query.Turn[query.DeadLetterPlace]{After: &query.DeadLetterPlace{}, Limit: 50}
		page, err := tn.System.Reader.ReadDeadLetters(t.Context(), filter, oldest, nil)
		require.NoError(t, err, search)
		require.Equal(t, listed[len(listed)-1], page.Rows[len(page.Rows)-1].DeadLetterID, search)
		require.Len(t, page.Rows, min(50, want), search)
	}
}

// An operation acts on what a search finds, and its audit has no values.
func TestPurgeWhatASearchFinds(t *testing.T) {
	t.Parallel()
	tn := searchable(t, searchData)
	filter := &query.DeadLetterFilter{Search: "data.order.id ~ ^42 subject : invoices/"}
	id := tn.BeginOperation(t, filter, operator.Action{Kind: operator.Purge})
	tn.OperateOn(t)
	tn.RequireOperation(t, id, "purge done: matched 3 done 3 skipped 0 failed 0")
	require.Equal(t, 5, tn.Rows(t, "dead_letters", "topic = 'shop'"))
	require.Equal(t, `[{"op": "~", "field": "data.order.id"}, {"op": ":", "field": "subject"}]`,
		tn.Text(t, "SELECT details #>> '{filter,match}' FROM postrider.audit WHERE action = 'operation_started'"))
}

// IST of Kolkata, as DateStyle SQL writes it, is read as Israel's.
func TestFiltersDoNotDependOnDateStyle(t *testing.T) {
	t.Parallel()
	tn := searchable(t, nil)
	const count = `SELECT postrider.count_dead_letters(jsonb_build_object(
		'dead_lettered_from', to_char(now() AT TIME ZONE 'UTC' - interval '1 hour', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
		'dead_lettered_until', to_char(now() AT TIME ZONE 'UTC' + interval '1 hour', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))`
	tx := tn.Begin(t)
	_, err := tx.Exec(t.Context(), "SET LOCAL datestyle = 'SQL, DMY'; SET LOCAL timezone = 'Asia/Kolkata'")
	require.NoError(t, err)
	var n int
	require.NoError(t, tx.QueryRow(t.Context(), count).Scan(&n))
	require.Equal(t, 1, n)
	const step = `SELECT cardinality(ids) FROM postrider_internal.next_dead_letters('{}',
		now() + $1::interval, '-infinity',
		'00000000-0000-0000-0000-000000000000', 10, NULL, 1000)`
	for until, want := range map[string]int{"-1 hour": 0, "1 hour": 1} {
		require.NoError(t, tx.QueryRow(t.Context(), step, until).Scan(&n))
		require.Equal(t, want, n, until)
	}
}
