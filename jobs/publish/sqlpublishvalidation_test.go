package publish_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/testnode"
)

// unusualValues are values that the envelope's member may not take, or may only just. Times and traces are texts to the
// others.
func unusualValues(member any) []any {
	texts := []any{
		"", "a", "1.0", "1", "0", "orders", "/topics/orders", "/topics/other", strings.Repeat("a", 1024),
		strings.Repeat("a", 1025), strings.Repeat("ü", 512), strings.Repeat("ü", 513),
		strings.Repeat("a", 4096), strings.Repeat("a", 4097), "a\nb", "a\rb", "a\tb", "\u2028", "YQ==", "YQ=", "YQ", "Y Q=",
		"====", "YWI=", "YWJj",
	}
	usual, _ := member.(string)
	traces := []any{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01",
		"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
		"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	if strings.HasPrefix(usual, "00-") {
		texts = append(texts, traces...)
	}
	moments := []any{
		"2026-01-01T00:00:00Z", "2026-01-01t00:00:00z", "2026-01-01T00:00:00.1234567Z", "2026-01-01T00:00:00+15:59",
		"2026-01-01T00:00:00-23:59", "2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00+23:60",
		"2026-02-29T00:00:00Z", "2024-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-13-01T00:00:00Z",
		"2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T23:59:60Z",
		"2026-01-01T00:60:00Z", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00.Z", "2026-01-01T0:00:00Z",
		"0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00",
		"9999-12-31T23:59:59Z", "9999-12-31T23:59:59-01:00", "12026-01-01T00:00:00Z", "2026-01-01T00:00:00,5Z",
		"2026-01-01T00:00:00.5+02:00", "2026-01-01T00:00:00+0200", "2026-01-01T00:00:00.25-11", "2026-01-01 00:00:00 +02:00",
		"2026-01-01 00:00:00.5", "2026-01-01t00:00z", "2026-01-01T00:00", "2026-01-01", "2026-01-01Z", "2026-02-29",
		"2026-01-01T00:00:00 ", "2026-01-01T00:00:00+2", "2026-01-01T00:00:00+0260", "20260101T000000Z",
		"2026-01-01T23:59:60", "2026-01-01T23:59:61+0000", "２０２６-01-01T00:00:00",
	}
	if strings.HasPrefix(usual, "2026-") {
		texts = append(texts, moments...)
	}
	return append(texts, nil, true, 1, 1.5, []any{}, map[string]any{})
}

// bases are events that are accepted, by schema, with every member there is.
var bases = map[event.Schema]map[string]any{
	event.EventGrid: {
		"id": "1", "subject": "s", "eventType": "t", "eventTime": "2026-01-01T00:00:00Z", "dataVersion": "2",
		"topic": "orders", "metadataVersion": "1", "data": map[string]any{"a": 1}, "more": 1,
	},
	event.CloudEvents: {
		"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "subject": "s", "time": "2026-01-01T00:00:00Z",
		"datacontenttype": "application/json", "dataschema": "x:y",
		"data_base64": "YQ==", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b",
		"ext1": 5,
	},
	event.Custom: {
		"nr": 5, "what": "t", "at": "2026-01-01T00:00:00Z", "version": "2", "topicname": "orders",
		"more": map[string]any{"about": "s"},
	},
}

var sqlMapping = &event.Mapping{Type: "Json", Properties: event.MappingProperties{
	ID: &event.MappedField{SourceField: "nr"}, Topic: &event.MappedField{SourceField: "topicname"},
	EventTime: &event.MappedField{SourceField: "at"},
	EventType: &event.MappedFieldWithDefault{SourceField: "what"}, Subject: &event.MappedFieldWithDefault{
		SourceField: "more.about", DefaultValue: new("none"),
	},
	DataVersion: &event.MappedFieldWithDefault{SourceField: "version"},
}}

// variants are a base with each member left out, with each of its unusual values in its place or in it, and in another
// letter case, beside the usual one too; and with names that may be rejected.
func variants(base map[string]any) (list []map[string]any) {
	change := func(f func(map[string]any)) {
		e := maps.Clone(base)
		f(e)
		list = append(list, e)
	}
	for name := range base {
		change(func(e map[string]any) { delete(e, name) })
		change(func(e map[string]any) { e[strings.ToUpper(name)] = e[name] })
		change(func(e map[string]any) { e[strings.ToUpper(name)] = e[name]; delete(e, name) })
		change(func(e map[string]any) { e[strings.ToUpper(name)] = 1; delete(e, name) })
		for _, v := range unusualValues(base[name]) {
			change(func(e map[string]any) { e[name] = v })
			if inner, ok := base[name].(map[string]any); ok {
				for member := range inner {
					change(func(e map[string]any) { e[name] = map[string]any{member: v} })
				}
			}
		}
	}
	for _, name := range []string{
		"data", "Ext", "a-b", "ab_c", "é", "\u212aind", strings.Repeat("a", 20), strings.Repeat("a", 21),
	} {
		change(func(e map[string]any) { e[name] = "x" })
	}
	return list
}

// made are the members that SQL makes where they are missing, and REST does not.
func made(schema event.Schema, e map[string]any) bool {
	switch schema {
	case event.EventGrid:
		return e["id"] == nil && e["ID"] == nil || e["eventTime"] == nil && e["EVENTTIME"] == nil
	case event.CloudEvents:
		return e["id"] == nil || e["specversion"] == nil
	case event.Custom, event.CustomInput:
	}
	return false
}

// TestSQLPublishValidatesLikeREST: the functions accept exactly what the REST API accepts, and store the same.
func TestSQLPublishValidatesLikeREST(t *testing.T) {
	t.Parallel()
	for schema, base := range bases {
		t.Run(string(schema), func(t *testing.T) {
			t.Parallel()
			tn := testnode.Unchecked(t)
			topic := catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: schema}
			if schema == event.Custom {
				topic.InputSchemaMapping = sqlMapping
			}
			_, _, err := tn.System.Topics.Put(t.Context(), "orders", topic)
			require.NoError(t, err)
			accepted, rejected := 0, 0
			for _, e := range variants(base) {
				if requireSameValidation(t, tn, schema, e) {
					accepted++
				} else {
					rejected++
				}
			}
			require.Greater(t, accepted, 100)
			require.Greater(t, rejected, 100)
		})
	}
}

// A custom event is any value but null, from SQL as by REST.
func TestSQLPublishOfCustomValues(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	mapping := &event.Mapping{Type: "Json", Properties: event.MappingProperties{
		EventType: &event.MappedFieldWithDefault{SourceField: "what", DefaultValue: new("t")},
		Subject:   &event.MappedFieldWithDefault{DefaultValue: new("s")},
	}}
	for name, m := range map[string]*event.Mapping{"orders": mapping, "strict": sqlMapping} {
		_, _, err := tn.System.Topics.Put(t.Context(), name,
			catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.Custom, InputSchemaMapping: m})
		require.NoError(t, err)
	}
	in := event.Input{Schema: event.Custom, Topic: "orders", Mapping: mapping, NewID: uuid.NewString, Now: time.Now()}
	for _, text := range []string{`"data"`, `-1.50`, `true`, `[]`, `["what", {"what": "x"}]`} {
		_, err := in.ParseOne([]byte(text))
		require.NoError(t, err)
		tn.Exec(t, "SELECT postrider.publish('orders', $1::jsonb)", text)
		tn.Exec(t, "SELECT postrider.publish_batch('orders', jsonb_build_array($1::jsonb))", text)
		require.Equal(t, 2, tn.Rows(t, "events", "body_text = $1 AND event_type = 't'", text), text)
	}
	for topic, says := range map[string]string{"orders": "event must not be null", "strict": "event.nr is required"} {
		_, err := tn.Pool.Exec(t.Context(), "SELECT postrider.publish($1, 'null')", topic)
		if topic == "strict" {
			_, err = tn.Pool.Exec(t.Context(), `SELECT postrider.publish($1, '"data"')`, topic)
		}
		require.ErrorContains(t, err, says)
	}
}

func requireSameValidation(t *testing.T, tn *testnode.Node, schema event.Schema, e map[string]any) (accepted bool) {
	t.Helper()
	text, err := json.Marshal(e)
	require.NoError(t, err)
	in := event.Input{Schema: schema, Topic: "orders", Mapping: sqlMapping, NewID: uuid.NewString, Now: time.Now()}
	media := map[event.Schema]string{event.CloudEvents: "application/cloudevents-batch+json"}[schema]
	if media == "" {
		media = "application/json"
	}
	expected, rejection := in.Parse(media, append(append([]byte("["), text...), ']'))
	var id, inBatch uuid.UUID
	err = tn.Pool.QueryRow(t.Context(), "SELECT postrider.publish('orders', $1::jsonb)", string(text)).Scan(&id)
	batchErr := tn.Pool.QueryRow(t.Context(),
		"SELECT (postrider.publish_batch('orders', jsonb_build_array($1::jsonb)))[1]", string(text)).Scan(&inBatch)
	require.Equal(t, err == nil, batchErr == nil, "%s: alone %v, in a batch %v", text, err, batchErr)
	if rejection != nil && !made(schema, e) {
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr, "%s is accepted, but REST says %v", text, rejection)
		require.Equal(t, "22023", pgErr.Code, "%s: %s", text, pgErr.Message)
		var said *event.Error
		require.ErrorAs(t, rejection, &said)
		require.Equal(t, strings.TrimSuffix("event."+said.Field, "."), pgErr.ColumnName, "%s", text)
		if strings.Contains(said.Message, "RFC 3339") || strings.Contains(said.Message, "seconds") {
			require.Equal(t, strings.Replace(said.About("event"), ": ", " ", 1), pgErr.Message)
		}
		return false
	}
	if err != nil && made(schema, e) {
		return false
	}
	require.NoError(t, err, "%s", text)
	if rejection == nil {
		requireStored(t, tn, &expected[0], id, inBatch)
	}
	return true
}
