package jobs_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs/publish"
	"postrider/policy"
)

func TestMain(m *testing.M) {
	// Most of these tests wait for an endpoint or a heartbeat: two at once on two cores would take five times as long.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := testdb.Run(m, testnode.Migrate)
	// Engines, stores and endpoints must be closed.
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const (
	topicName = "orders"
	tick      = 10 * time.Millisecond
)

// setup creates a database with one topic of the Event Grid schema.
func setup(t *testing.T) *testnode.Node {
	t.Helper()
	return setupTopic(t, event.EventGrid)
}

// setupTopic creates a database with one topic.
func setupTopic(t *testing.T, schema event.Schema) *testnode.Node {
	t.Helper()
	return setupSpec(t, catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: schema})
}

// setupSpec creates a database with one topic.
func setupSpec(t *testing.T, topic catalog.TopicSpec) *testnode.Node {
	t.Helper()
	tn := testnode.New(t)
	_, _, err := tn.System.Topics.Put(t.Context(), topicName, topic)
	require.NoError(t, err)
	return tn
}

// useWorkers replaces the parts of the node by some with n workers.
func useWorkers(t *testing.T, tn *testnode.Node, n int) {
	t.Helper()
	tn.System = tn.Beside(t, node.Options{Node: "node-1", MaxWorkers: n}).System // the invariants need the pool
}

// subscribe creates an event subscription for all events of the topic.
func subscribe(
	t *testing.T, tn *testnode.Node, name, url string, change func(*catalog.SubscriptionSpec),
) *catalog.Subscription {
	t.Helper()
	spec := catalog.SubscriptionSpec{
		EndpointURL: url, EndpointKind: policy.KindWebhook,
		EventDeliverySchema: event.EventGrid, RetryPolicy: catalog.RetryPolicySpec{Policy: policy.DefaultName},
	}
	if change != nil {
		change(&spec)
	}
	sub, _, err := tn.System.Subscriptions.Put(t.Context(), topicName, name, spec)
	require.NoError(t, err)
	return sub
}

// under sets the retry policy of an event subscription.
func under(retryPolicy string) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy = retryPolicy }
}

// eventGridBody is an event as a publisher writes it; data is JSON text.
func eventGridBody(id, data string) string {
	return fmt.Sprintf(`{"id":%q,"subject":"s","eventType":"test","eventTime":"2026-01-01T00:00:00Z",`+
		`"dataVersion":"2.1","data":%s}`, id, data)
}

// publish stores one request's body as the server would.
func publishBody(t *testing.T, tn *testnode.Node, contentType, body string) *publish.Receipt {
	t.Helper()
	return publishRequest(t, tn, http.Header{"Content-Type": {contentType}}, body)
}

// publishRequest stores one request as the server would.
func publishRequest(t *testing.T, tn *testnode.Node, header http.Header, body string) *publish.Receipt {
	t.Helper()
	receipt, err := tn.System.Publisher.Publish(t.Context(),
		publish.Publication{Topic: topicName, Parse: func(topic *catalog.Topic) ([]event.Event, error) {
			in := event.Input{
				Schema: topic.InputSchema, Topic: topic.Name, Mapping: topic.InputSchemaMapping, NewID: uuid.NewString,
				Now: time.Now(),
			}
			return in.ParseRequest(header, []byte(body))
		}})
	require.NoError(t, err)
	return receipt
}

// publishOne stores one Event Grid event.
func publishOne(t *testing.T, tn *testnode.Node, id string) *publish.Receipt {
	t.Helper()
	return publishBody(t, tn, "application/json", "["+eventGridBody(id, "{}")+"]")
}

// copyPolicy copies a retry policy with some columns changed, by SQL.
func copyPolicy(t *testing.T, tn *testnode.Node, from, to, changes string) {
	t.Helper()
	tn.Exec(t, `INSERT INTO postrider_internal.retry_policies
		SELECT (jsonb_populate_record(p, $3::jsonb || jsonb_build_object('name', $2::text, 'built_in', false))).*
		  FROM postrider_internal.retry_policies p WHERE name = $1`, from, to, changes)
	tn.Exec(t, `INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action, min_delay)
		SELECT $2, endpoint_kind, condition, action, min_delay FROM postrider_internal.retry_policy_cells WHERE policy = $1`,
		from, to)
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
}

// withoutProbation switches probation off, for tests of many failures at one endpoint.
func withoutProbation(t *testing.T, tn *testnode.Node) {
	t.Helper()
	tn.Exec(t, "UPDATE postrider_internal.retry_policies SET probation_scope = 'none'")
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
}

// travelStatement makes the next attempt of each waiting delivery due now: all its times move into the past by the
// remaining wait, those of recorded attempts too, so that they stay consistent.
const travelStatement = `
WITH waiting AS (
    SELECT d.id, d.job_id, d.next_attempt_at - now() AS wait FROM postrider_internal.deliveries d
      JOIN postrider_internal.river_job j ON j.id = d.job_id AND j.state IN ('scheduled', 'available', 'retryable')
     WHERE d.next_attempt_at > now() FOR UPDATE
), attempts AS (
    UPDATE postrider_internal.delivery_attempts a SET started_at = started_at - wait,
        next_attempt_at = next_attempt_at - wait
      FROM waiting WHERE a.delivery_id = waiting.id
), deliveries AS (
    UPDATE postrider_internal.deliveries d SET time_to_live_since = time_to_live_since - wait,
        first_attempt_at = first_attempt_at - wait,
           last_attempt_at = last_attempt_at - wait, next_attempt_at = next_attempt_at - wait,
           not_before = not_before - wait
      FROM waiting WHERE d.id = waiting.id
), due AS (
    UPDATE postrider_internal.river_job j SET scheduled_at = now(), state = 'available' FROM waiting
    WHERE j.id = waiting.job_id
)
SELECT count(*) FROM waiting`

// travelBatches is the same for batches with their members. The time at which a batch was cut stays: it is part of its
// message id.
const travelBatches = `
WITH waiting AS (
    SELECT b.id, b.job_id, b.next_attempt_at - now() AS wait FROM postrider_internal.batches b
      JOIN postrider_internal.river_job j ON j.id = b.job_id AND j.state IN ('scheduled', 'available', 'retryable')
     WHERE b.next_attempt_at > now() FOR UPDATE
), attempts AS (
    UPDATE postrider_internal.delivery_attempts a SET started_at = started_at - wait,
        next_attempt_at = next_attempt_at - wait
      FROM waiting WHERE a.batch_id = waiting.id
), batches AS (
    UPDATE postrider_internal.batches b SET first_attempt_at = first_attempt_at - wait,
        last_attempt_at = last_attempt_at - wait,
           next_attempt_at = next_attempt_at - wait, not_before = not_before - wait FROM waiting WHERE b.id = waiting.id
), members AS (
    UPDATE postrider_internal.left_members m SET left_at = left_at - wait FROM waiting WHERE m.batch_id = waiting.id
), deliveries AS (
    UPDATE postrider_internal.deliveries d SET time_to_live_since = time_to_live_since - wait,
        first_attempt_at = first_attempt_at - wait,
           last_attempt_at = last_attempt_at - wait, next_attempt_at = next_attempt_at - wait
      FROM waiting WHERE d.batch_id = waiting.id
), due AS (
    UPDATE postrider_internal.river_job j SET scheduled_at = now(), state = 'available' FROM waiting
    WHERE j.id = waiting.job_id
)
SELECT count(*) FROM waiting`

// travel makes the next attempt of every waiting delivery and batch due, and returns their number.
func travel(t *testing.T, tn *testnode.Node) int {
	t.Helper()
	n := tn.Count(t, travelStatement) + tn.Count(t, travelBatches)
	tn.Exec(t, `SELECT pg_notify('postrider_internal.river_insert', '{"queue":"deliveries"}')`)
	return n
}

// settle waits until nothing is due or waits at the gate: every possible attempt was recorded.
func settle(t *testing.T, tn *testnode.Node) {
	t.Helper()
	tn.Become(t, 0, `SELECT (SELECT count(*) FROM postrider_internal.river_job WHERE state = 'running'
		    OR (state IN ('available', 'scheduled', 'retryable') AND scheduled_at <= now()))
		+ (SELECT count(*) FROM postrider_internal.deliveries WHERE hold = 'admission')
		+ (SELECT count(*) FROM postrider_internal.batches WHERE hold = 'admission')`)
}
