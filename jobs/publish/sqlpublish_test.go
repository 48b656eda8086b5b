package publish_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
)

// TestLargePublishesAreGatheredInParts: what was published while no node ran must not become one route of a million
// events.
func TestLargePublishesAreGatheredInParts(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	topic := tn.Topic(t, "orders")
	tn.Exec(t, `INSERT INTO postrider_internal.sql_publishes (topic_id, event_day, event_uuids)
		SELECT $1, (now() AT TIME ZONE 'UTC')::date, array_agg(gen_random_uuid())
		  FROM generate_series(1, 9) publish, generate_series(1, 5000) GROUP BY publish`, topic.ID)
	var gathered []int
	for range 4 {
		n, jobs, err := tn.System.Publisher.CollectPublishes(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, len(jobs), 1)
		gathered = append(gathered, n)
	}
	require.Equal(t, []int{4, 4, 1, 0}, gathered)
	require.Equal(t, 45_000, tn.Count(t, "SELECT sum(cardinality(event_uuids)) FROM postrider_internal.routes"))
}

// The fast path accepts what most publishers send, and no event that needs further checks.
func TestPlainEventsAreValidatedByTheFastPath(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.PutTopic(t, "cloud", testnode.CloudEvents)
	const grid, cloud = `{"id": "1", "eventType": "A", "subject": "s"`, `{"type": "A", "source": "/s"`
	taken := func(topic, event string) bool {
		return testnode.Value[bool](t, tn, "SELECT postrider_internal.accept_plain_event($1, $2) IS NOT NULL", topic, event)
	}
	for _, event := range []string{
		`{"eventType": "A", "subject": ""}`,
		grid + `, "eventTime": "2026-12-31T23:59:59.123456Z", "dataVersion": "1", "data": {"a": [1]}}`,
	} {
		require.True(t, taken("orders", event), event)
	}
	for _, event := range []string{
		grid + `, "eventTime": "2024-02-29T00:00:00.123456Z"}`, grid + `, "eventTime": "2026-12-31T23:59:59.1234567Z"}`,
		grid + `, "topic": "orders"}`, `{"eventType": "A"}`, grid + `, "Data": 1}`, grid + `, "extra": 1}`,
		`{"id": 1, "eventType": "A", "subject": "s"}`, `{"ID": "1", "eventType": "A", "subject": "s"}`,
	} {
		require.False(t, taken("orders", event), event)
	}
	for event, short := range map[string]bool{
		cloud + `}`: true,
		cloud + `, "specversion": "1.0", "id": "1", "subject": "s", "time": "2026-01-31T00:00:00Z",
			"datacontenttype": "application/json", "data": 5}`: true,
		cloud + `, "ext": 1}`: false, cloud + `, "datacontenttype": "text/plain", "data": "a"}`: false,
	} {
		require.Equal(t, short, taken("cloud", event), event)
	}
}

// requireStored fails unless each of the events has been stored as wanted.
func requireStored(t *testing.T, tn *testnode.Node, want *event.Event, ids ...uuid.UUID) {
	t.Helper()
	const query = `SELECT event_id, event_type, subject, source, event_time, data_version, schema,
		       coalesce(traceparent, ''), coalesce(tracestate, ''), body
		  FROM postrider_internal.events WHERE id = ANY ($1)`
	rows, _ := tn.Pool.Query(t.Context(), query, ids) // see ForEachRow
	var got event.Event
	var at *time.Time
	stored, err := pgx.ForEachRow(rows, []any{
		&got.ID, &got.Type, &got.Subject, &got.Source, &at, &got.DataVersion, &got.Schema, &got.Trace.Parent,
		&got.Trace.State, &got.Body,
	}, func() error {
		require.JSONEq(t, string(want.Body), string(got.Body))
		if want.Time.IsZero() {
			require.Nil(t, at)
		} else {
			require.WithinDuration(t, want.Time, *at, time.Microsecond)
		}
		got.Body, got.Time = want.Body, want.Time
		require.Equal(t, *want, got)
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, len(ids), stored.RowsAffected())
}

// TestPublishFromSQL: commit publishes, rollback publishes nothing; matches are found when the event is routed.
func TestPublishFromSQL(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.Subscribe(t, "orders", "placed",
		func(s *catalog.SubscriptionSpec) { s.Filter.IncludedEventTypes = []string{"Placed"} })

	tx := tn.Begin(t)
	var ids []uuid.UUID
	row := tx.QueryRow(t.Context(), `SELECT postrider.publish_batch('orders',
		    '[{"eventType": "Placed", "subject": "1"}, {"eventType": "Paid", "subject": "1"}]')`)
	require.NoError(t, row.Scan(&ids))
	require.Len(t, ids, 2)
	require.Zero(t, tn.Rows(t, "events", ""))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 2, tn.Rows(t, "events", "matched IS NULL"))
	require.Equal(t, 1, tn.RouteAll(t, tn.System))
	require.Equal(t, 3, tn.Rows(t, "deliveries", ""))
	require.Equal(t, 2, tn.Count(t, "SELECT matched FROM postrider.events WHERE system_id = $1", ids[0]))
	require.Equal(t, 1, tn.Count(t, "SELECT matched FROM postrider.events WHERE system_id = $1", ids[1]))
	require.Equal(t, 1, tn.Rows(t, "events",
		"system_id = $1 AND body ->> 'id' = event_id AND event_time > now() - interval '1 minute'", ids[1]))

	end := tn.OpenTransaction(t, `SELECT postrider.publish('orders', '{"eventType": "Placed", "subject": "2"}')`)
	end(false)
	require.Empty(t, tn.RouteJobs(t))
	require.Equal(t, 2, tn.Rows(t, "events", ""))
}

// TestPublishFromSQLUnmatched: an unmatched event is reported as such, whatever else its route has.
func TestPublishFromSQLUnmatched(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Subscribe(t, "orders", "placed",
		func(s *catalog.SubscriptionSpec) { s.Filter.IncludedEventTypes = []string{"Placed"} })
	tn.Exec(t, `SELECT postrider.publish_batch('orders',
		    '[{"eventType": "A", "subject": ""}, {"eventType": "Placed", "subject": ""}, {"eventType": "B", '
		        '"subject": ""}]')`)
	tn.RouteAll(t, tn.System)
	require.Equal(t, 2, tn.Rows(t, "events", "matched = 0 AND filter_version IS NOT NULL AND event_type IN ('A', 'B')"))
	require.Equal(t, 1, tn.Rows(t, "events", "matched = 1 AND filter_version IS NOT NULL AND event_type = 'Placed'"))
}

// TestPublishFromSQLIsCounted: once, also where routes wait for their turn and take several steps.
func TestPublishFromSQLIsCounted(t *testing.T) {
	t.Parallel()
	tn := routed(t, 3)
	tn.Exec(t, `SELECT postrider.publish_batch('orders', (SELECT jsonb_agg('{"eventType": "A", "subject": ""}'::jsonb)
		    FROM generate_series(1, 3400)))`)
	for range 30 {
		tn.Exec(t, `SELECT postrider.publish_batch('orders',
			    '[{"eventType": "A", "subject": ""}, {"eventType": "B", "subject": ""}]')`)
	}
	require.Greater(t, tn.RouteAll(t, tn.System), 1)
	requireRoutedOnce(t, tn)
	const published = "SELECT coalesce(sum(e.count), 0) FROM postrider_internal.rollup_deltas d, unnest(d.entries) e " +
		"WHERE e.kind = $1"
	require.Equal(t, 3460, tn.Count(t, "SELECT ("+published+") + (SELECT coalesce(sum(count), 0) "+
		"FROM postrider_internal.rollups WHERE kind = $1)", "published"))
}

// An event subscription that was created before the event, in a transaction that began later, gets it.
func TestPublishDuringConfigurationChanges(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tx := tn.Begin(t)
	_, err := tx.Exec(t.Context(), "SELECT now()")
	require.NoError(t, err)
	tn.Subscribe(t, "orders", "early", nil)
	_, err = tx.Exec(t.Context(), `SELECT postrider.publish('orders', '{"eventType": "A", "subject": ""}')`)
	require.NoError(t, err)
	tn.Subscribe(t, "orders", "late", nil) // does not wait for the open transaction
	require.NoError(t, tx.Commit(t.Context()))
	tn.RouteAll(t, tn.System)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "subscription = 'early'"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", ""))
}

// TestPublishRejections: what is wrong beside the envelope.
func TestPublishRejections(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	deep := strings.Repeat("[", 256) + strings.Repeat("]", 256)
	flat := `{"eventType": "A", "subject": "", "data": [` + strings.Repeat(`"[{",`, 300) + `{}]}`
	for _, c := range []struct{ call, message string }{
		{`postrider.publish('other', '{}')`, `topic "other" does not exist`},
		{`postrider.publish(NULL, '{}')`, `topic is required`},
		{`postrider.publish('orders', NULL)`, `event is required`},
		{`postrider.publish('orders', '[]')`, `event must be an object, is an array`},
		{`postrider.publish('orders', '{"subject": ""}')`, `event.eventType is required`},
		{`postrider.publish_batch('orders', NULL)`, `events is required`},
		{`postrider.publish_batch('orders', '{}')`, `events must be an array, is an object`},
		{
			`postrider.publish_batch('orders', '[{"subject": "", "eventType": "A"}, {"subject": true, "eventType": "A"}]')`,
			`events[1].subject must be a string or a number, is a boolean`,
		},
		{`postrider.publish_batch('orders', (SELECT jsonb_agg(n) FROM generate_series(1, 5001) n))`, `events holds at most ` +
			`5000 events, this one has 5001`},
		{
			`postrider.publish('orders', jsonb_build_object('subject', '', 'eventType', 'A', 'data', repeat('x', 1048576)))`,
			`event an event has at most 1048576 bytes, this one has 1048`,
		},
		{`postrider.publish('orders', '{"eventType": "A", "subject": "", "data": ` + deep + `}')`, `event objects and ` +
			`arrays may nest 256 deep at most`},
	} {
		_, err := tn.Pool.Exec(t.Context(), "SELECT "+c.call)
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr, c.call)
		require.Equal(t, "22023", pgErr.Code, pgErr.Message)
		require.True(t, strings.HasPrefix(pgErr.Message, c.message), pgErr.Message)
	}
	require.Zero(t, tn.Rows(t, "events", ""))
	require.NoError(t, testnode.ErrorOf(tn.Pool.Exec(t.Context(), "SELECT postrider.publish('orders', $1::jsonb)", flat)))
	tn.Exec(t, `SELECT postrider.publish('orders', '{"eventType": "A", "subject": "", "data": `+deep[1:511]+`}')`)
	require.Equal(t, 0, tn.Count(t, "SELECT cardinality(postrider.publish_batch('orders', '[]'))"))
}

// TestPublisherRole: it may publish and nothing else, whatever stands in its search path.
func TestPublisherRole(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	conn, err := tn.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	try := func(statement string) error {
		_, err := conn.Exec(t.Context(), statement)
		return err
	}
	require.NoError(t, try(`CREATE SCHEMA trap; CREATE FUNCTION trap.octet_length(text) RETURNS integer
		LANGUAGE sql AS 'SELECT 1 / 0'; GRANT USAGE ON SCHEMA trap TO postrider_publisher`))
	require.NoError(t, try("SET ROLE postrider_publisher; SET search_path = trap, pg_catalog"))
	defer func() { require.NoError(t, try("RESET ROLE; RESET search_path")) }()
	require.NoError(t, try(`SELECT postrider.publish('orders', '{"eventType": "A", "subject": ""}')`))
	require.NoError(t, try(`SELECT postrider.publish_batch('orders', '[{"eventType": "A", "subject": ""}]')`))
	for _, forbidden := range []string{
		"SELECT * FROM postrider.events", "SELECT * FROM postrider.topics", "SELECT * FROM postrider_internal.events",
		"SELECT postrider_internal.accept_events('orders', '[]', true, true, NULL)", "SELECT * FROM postrider.dead_letters",
		"DELETE FROM postrider_internal.dead_letters", "DELETE FROM postrider.nodes",
	} {
		require.ErrorContains(t, try(forbidden), "permission denied", forbidden)
	}
	require.NoError(t, try("SET ROLE postrider_reader"))
	require.ErrorContains(t, try(`SELECT postrider.publish('orders', '{"eventType": "A", "subject": ""}')`),
		"permission denied")
}

// TestPublishRowChange: a trigger on a table of the user's publishes each change of a row, with its transaction.
func TestPublishRowChange(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.PutTopic(t, "cloud", testnode.CloudEvents)
	tn.Exec(t, `CREATE TABLE public.orders (region text, nr integer, total numeric, PRIMARY KEY (region, nr));
		CREATE TRIGGER events AFTER INSERT OR UPDATE OR
		DELETE ON public.orders FOR EACH ROW EXECUTE FUNCTION postrider.publish_row_change('orders');
		CREATE TRIGGER cloud AFTER INSERT ON public.orders FOR EACH ROW EXECUTE FUNCTION postrider.publish_row_change('cloud',
		    'Shop.Order', 'nr, region')`)
	tn.Exec(t, `INSERT INTO public.orders VALUES ('eu', 1, 9.50), ('eu', 2, 1)`)
	tn.Exec(t,
		`UPDATE public.orders SET total = 10.00 WHERE nr = 1; UPDATE public.orders SET total = total;
		DELETE FROM public.orders WHERE nr = 1`)
	tn.Exec(t, `BEGIN; INSERT INTO public.orders VALUES ('us', 1, 1); ROLLBACK`)
	require.Equal(t,
		"public.orders.Inserted public/orders/eu/1 null 9.50,public.orders.Inserted public/orders/eu/2 null 1,"+
			"public.orders.Updated public/orders/eu/1 9.50 10.00,public.orders.Deleted public/orders/eu/1 10.00 null", tn.Text(t,
			`SELECT string_agg(concat_ws(' ', event_type, subject, coalesce(body #>> '{data,old,total}', 'null'),
		       coalesce(body #>> '{data,new,total}', 'null')), ',' ORDER BY published_at, system_id)
		   FROM postrider.events WHERE topic = 'orders'`))
	require.Equal(t, "Shop.Order.Inserted /public/orders public/orders/1/eu", tn.Text(t,
		`SELECT concat_ws(' ', event_type, source, subject) FROM postrider.events WHERE topic = 'cloud' ORDER BY published_at,
			       system_id LIMIT 1`))

	// Types that cannot be compared, and changes of what is equal.
	tn.Exec(t, `CREATE TABLE public.notes (nr integer PRIMARY KEY, body json, price numeric);
		CREATE TRIGGER events AFTER UPDATE ON public.notes FOR EACH ROW
		    EXECUTE FUNCTION postrider.publish_row_change('orders', 'Note');
		INSERT INTO public.notes VALUES (1, '{}', 1.0); UPDATE public.notes SET body = body;
		UPDATE public.notes SET body = '{ }'; UPDATE public.notes SET price = 1.00`)
	require.Equal(t, 2, tn.Rows(t, "events", "event_type = 'Note.Updated'"))

	for arguments, message := range map[string]string{
		"AFTER INSERT ROW ()":                      "publish_row_change takes a topic",
		"AFTER INSERT STATEMENT ('orders')":        "FOR EACH ROW",
		"BEFORE INSERT ROW ('orders')":             "AFTER the change",
		"AFTER INSERT ROW ('nowhere')":             `topic "nowhere" does not exist`,
		"AFTER INSERT ROW ('orders', '', 'nr')":    `"nr", which the trigger's arguments name, does not exist in public`,
		"AFTER INSERT ROW ('orders', '', '', 'b')": `"b", which the trigger's arguments name, does not exist`,
	} {
		words := strings.SplitN(arguments, " ", 4)
		tn.Exec(t, "DROP TABLE IF EXISTS public.wrong; CREATE TABLE public.wrong (a integer)")
		tn.Exec(t, fmt.Sprintf(`CREATE TRIGGER events %s %s ON public.wrong FOR EACH %s
			EXECUTE FUNCTION postrider.publish_row_change%s`, words[0], words[1], words[2], words[3]))
		require.Contains(t, tn.RejectedBy(t, "INSERT INTO public.wrong VALUES (1)"), message)
	}
}

// TestPublishInUnusualSessions: what is published does not depend on the settings of the session.
func TestPublishInUnusualSessions(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.PutTopic(t, "cloud", testnode.CloudEvents)
	tn.Exec(t, `CREATE TABLE public.things (nr integer PRIMARY KEY, at timestamptz, span interval, raw bytea, x float8,
		    during daterange, names text[]);
		CREATE TRIGGER events AFTER INSERT ON public.things FOR EACH ROW
		    EXECUTE FUNCTION postrider.publish_row_change('orders')`)
	usual, err := pgx.Connect(t.Context(), tn.URL)
	require.NoError(t, err)
	defer postgres.CloseConn(usual)
	unusual, err := pgx.Connect(t.Context(), tn.URL)
	require.NoError(t, err)
	defer postgres.CloseConn(unusual)
	for name, value := range testdb.UnusualSettings {
		if name != "client_encoding" { // which pgx does not follow
			_, err := unusual.Exec(t.Context(), "SELECT pg_catalog.set_config($1, $2, false)", name, value)
			require.NoError(t, err, name)
		}
	}
	for nr, session := range []*pgx.Conn{usual, unusual} {
		_, err = session.Exec(t.Context(), `INSERT INTO public.things SELECT $1, t.at, i.span, decode('00ff', 'hex'),
			0.1::float8 + 0.2::float8, d.during, ARRAY ['a', NULL] FROM jsonb_to_record('{"at": "2026-03-04T05:06:07Z"}') AS
			t(at timestamptz), make_interval(days => 1, hours => 2) AS i(span),
			daterange(make_date(2026, 3, 4), NULL) AS d(during)`, nr)
		require.NoError(t, err)
		const event = `{"id":"a","eventType":"A","subject":"s\\t'","eventTime":"2026-03-04T05:06:07Z",
			"data":{"n":0.30,"t":"\u00e9"}}`
		_, err = session.Exec(t.Context(), "SELECT postrider.publish('orders', $1)", event)
		require.NoError(t, err)
		_, err = session.Exec(t.Context(), "SELECT postrider.publish_batch('orders', $1)", "["+event+"]")
		require.NoError(t, err)
		_, err = session.Exec(t.Context(), `SELECT postrider.publish_data('cloud', 'A', 's', '{"n": 1}', source => '/a')`)
		require.NoError(t, err)
	}
	require.Equal(t, "orders A 4, orders public.things.Inserted 2, cloud A 2", tn.Text(t, `
		SELECT string_agg(concat_ws(' ', topic, event_type, n), ', ' ORDER BY topic DESC, event_type)
		FROM (SELECT topic, event_type, subject_of, values_of, count(*) AS n FROM (
		    SELECT topic, event_type, replace(subject, '/1', '/0') AS subject_of,
		        CASE WHEN topic = 'orders' AND event_type = 'A' THEN body ELSE (body #> '{data,new}') - 'nr' END AS values_of
		    FROM postrider.events) e GROUP BY 1, 2, 3, 4) g`))
}

// TestPublishFromSQLSideBySide: transactions that publish never wait for one another.
func TestPublishFromSQLSideBySide(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	testnode.AtOnce(8, func(int) {
		for i := range 25 {
			end := tn.OpenTransaction(t, `SELECT postrider.publish('orders', '{"eventType": "A", "subject": ""}')`)
			end(i%2 == 0)
		}
	})
	tn.RouteAll(t, tn.System)
	require.Equal(t, 104, tn.Rows(t, "deliveries", ""))
}

// TestRowChangeRunsAsItsUser: a cast of the user's own, which to_jsonb calls, has only the rights of the role that
// changes the row.
func TestRowChangeRunsAsItsUser(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.Exec(t, `CREATE SCHEMA app; GRANT USAGE ON SCHEMA app TO postrider_publisher; CREATE TYPE app.mood AS ENUM ('fine');
		CREATE FUNCTION app.tell(app.mood) RETURNS json LANGUAGE sql AS 'SELECT to_json(current_user::text)';
		CREATE CAST (app.mood AS json) WITH FUNCTION app.tell(app.mood);
		CREATE TABLE app.people (nr integer PRIMARY KEY, mood app.mood); GRANT INSERT ON app.people TO postrider_publisher,
		    postrider_reader; GRANT USAGE ON SCHEMA app TO postrider_reader;
		CREATE TRIGGER events AFTER INSERT ON app.people FOR EACH ROW
		    EXECUTE FUNCTION postrider.publish_row_change('orders')`)
	conn, err := tn.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	defer func() { _, _ = conn.Exec(context.Background(), "RESET ROLE") }()
	require.NoError(t, testnode.ErrorOf(conn.Exec(t.Context(), "SET ROLE postrider_publisher")))
	_, err = conn.Exec(t.Context(), "INSERT INTO app.people VALUES (1, 'fine')")
	require.NoError(t, err)
	require.Equal(t, "postrider_publisher", tn.Text(t, "SELECT body #>> '{data,new,mood}' FROM postrider.events"))
	require.NoError(t, testnode.ErrorOf(conn.Exec(t.Context(), "SET ROLE postrider_reader")))
	_, err = conn.Exec(t.Context(), "INSERT INTO app.people VALUES (2, 'fine')")
	require.ErrorContains(t, err, "permission denied")
}
