package web_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"postrider/event"
	"postrider/migrations"
	"postrider/pgdev"
	"postrider/policy"
	"postrider/store"
	"postrider/web"
)

func TestMain(m *testing.M) { os.Exit(pgdev.RunTests(m, migrate)) }

func migrate(ctx context.Context, url string) error {
	pool, err := store.OpenPool(ctx, url, 0)
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrations.Up(ctx, pool, io.Discard)
}

// bundle is the dashboard on a database of its own.
type bundle struct {
	pool  *pgxpool.Pool
	store *store.Store
	echo  *echo.Echo
}

// setup mounts the dashboard open; change may alter its options.
func setup(t *testing.T, change ...func(*web.Options)) *bundle {
	t.Helper()
	pool, err := store.OpenPool(t.Context(), pgdev.NewDatabase(t), 4)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	sealer, err := store.NewSealer([]byte("0123456789abcdef0123456789abcdef"))
	require.NoError(t, err)
	b := &bundle{pool: pool, echo: echo.New()}
	b.store, err = store.New(t.Context(), store.Options{Pool: pool, Sealer: sealer, Node: "test"})
	require.NoError(t, err)
	options := web.Options{Store: b.store, Open: true, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&options)
	}
	require.NoError(t, web.Mount(b.echo, options))
	return b
}

// ask sends one request to the dashboard; change may alter it.
func (b *bundle) ask(method, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, nil)
	request.Host = "localhost:8080"
	for _, f := range change {
		f(request)
	}
	answer := httptest.NewRecorder()
	b.echo.ServeHTTP(answer, request)
	return answer
}

// page reads one page that must be there.
func (b *bundle) page(t *testing.T, path string) string {
	t.Helper()
	answer := b.ask(http.MethodGet, path)
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	return answer.Body.String()
}

// letter is a dead letter for a test to insert; what it leaves empty is filled.
type letter struct {
	at                                               time.Time
	topic, subscription, eventID, eventType, subject string
	reason                                           string
	attempts                                         int
	outcome                                          *string
	status                                           *int
	attempted                                        *time.Time
	body                                             string
}

func (b *bundle) insert(t *testing.T, letters ...letter) (ids []uuid.UUID) {
	t.Helper()
	const statement = `INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, delivery_id, subscription_id, topic_id, topic, subscription,
		endpoint_base_url, reason, attempts, last_outcome, last_status, last_attempt_at, owed_since, published_at, event_uuid, event_id, event_type,
		subject, source, data_version, schema, retry_policy, body)
		VALUES ($1, $2, 1, 1, 1, $3, $4, 'https://example.com/', $5, $6, $7, $8, $9, $2, $2, $1, $10, $11, $12, '', '', 'EventGridSchema', 'ga-2021', $13)`
	batch := &pgx.Batch{}
	for _, l := range letters {
		id := uuid.New()
		ids = append(ids, id)
		batch.Queue(statement, id, l.at, orText(l.topic, "orders"), orText(l.subscription, "billing"), orText(l.reason, "MaxDeliveryAttemptsExceeded"),
			l.attempts, l.outcome, l.status, l.attempted, orText(l.eventID, "e-1"), orText(l.eventType, "Order.Placed"), l.subject, []byte(orText(l.body, "{}")))
	}
	require.NoError(t, b.pool.SendBatch(t.Context(), batch).Close())
	return ids
}

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// subscribe makes an event subscription and the topic it belongs to.
func (b *bundle) subscribe(t *testing.T, topic, name string, change ...func(*store.SubscriptionSpec)) {
	t.Helper()
	_, _, err := b.store.PutTopic(t.Context(), topic, store.TopicSpec{Kind: store.TopicBasic, InputSchema: event.EventGrid})
	require.NoError(t, err)
	spec := store.SubscriptionSpec{
		EndpointURL: "https://example.com/hook?code=planted-secret", EndpointBaseURL: "https://example.com/hook",
		EndpointKind: policy.KindWebhook, EventDeliverySchema: event.EventGrid, RetryPolicy: "ga-2021",
	}
	for _, f := range change {
		f(&spec)
	}
	_, _, err = b.store.PutSubscription(t.Context(), topic, name, spec)
	require.NoError(t, err)
}

func (b *bundle) pause(t *testing.T, topic, subscription string) {
	t.Helper()
	_, err := b.store.PauseSubscription(t.Context(), topic, subscription, nil)
	require.NoError(t, err)
}

// probation puts an event subscription on probation, with the next probe so far from now; probeJob is 0 where none is under way.
func (b *bundle) probation(t *testing.T, topic, subscription string, probeIn time.Duration, probeJob int) {
	t.Helper()
	_, err := b.pool.Exec(t.Context(), `INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts)
		SELECT $1::bigint, 'running', '{}', 'deliver', 'deliveries', 1, 1000 WHERE $1 > 0`, probeJob)
	require.NoError(t, err)
	tag, err := b.pool.Exec(t.Context(), `INSERT INTO postrider_internal.probations (rest_key, endpoint_base_url, since, until, cause, step, failures_in_a_row, probe_job_id)
		SELECT postrider_internal.rest_key(p.probation_scope, s.endpoint_hash, s.id), s.endpoint_base_url, now(), now() + $3::interval, 'Busy', 1, 10, nullif($4::bigint, 0)
		  FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t ON t.id = s.topic_id JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
		 WHERE t.name = $1 AND s.name = $2`, topic, subscription, probeIn, probeJob)
	require.NoError(t, err)
	require.Equal(t, int64(1), tag.RowsAffected())
}

func quoteJSON(t *testing.T, text string) string {
	t.Helper()
	var out json.RawMessage
	out, err := json.Marshal(text)
	require.NoError(t, err)
	return string(out)
}

func ptr[T any](v T) *T { return &v }
