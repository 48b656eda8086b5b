package brokers

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"postrider/internal/catalog"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	engineevent "postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/policy"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m, testnode.Template())) }

// watched is a client that reports its end.
type watched struct {
	destination.Sender
	closed chan struct{}
}

func (w *watched) Close() {
	w.Sender.Close()
	close(w.closed)
}

// watch returns the program's clients, and those that the engine opens.
func watch() (open map[destination.Type]destination.Open, opened chan *watched) {
	open, opened = node.Brokers(), make(chan *watched, 10)
	for kind, of := range open {
		open[kind] = func(p *destination.Properties, o destination.ClientOptions) (destination.Sender, error) {
			s, err := of(p, o)
			if err != nil {
				return nil, err
			}
			w := &watched{s, make(chan struct{})}
			opened <- w
			return w, nil
		}
	}
	return open, opened
}

func receive[T any](t *testing.T, what string, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(testnode.Timeout):
		require.FailNow(t, "not within "+testnode.Timeout.String(), what)
	}
	return value
}

// stored is a message in a broker.
type stored struct {
	key, body string
	headers   map[string]string
}

// target is a broker that knows the user u with password right, and returns its only message.
type target struct {
	kind       destination.Type
	properties destination.Properties
	message    func() stored
}

func kafkaTarget(t *testing.T) target {
	t.Helper()
	c := cluster(t, kfake.EnableSASL(), kfake.Superuser(string(destination.SASLPlain), "u", "right"))
	rejectWrongPasswords(c)
	return target{destination.Kafka, destination.Properties{
		Servers: c.ListenAddrs(), Topic: topic, ContentMode: destination.Binary, MessageKey: "data.customer",
		SASLMechanism: destination.SASLPlain,
	}, func() stored {
		records := read(t, c, 1, kgo.SASL(plain.Auth{User: "u", Pass: "right"}.AsMechanism()))
		require.Len(t, records, 1)
		headers := map[string]string{}
		for _, header := range records[0].Headers {
			headers[header.Key] = string(header.Value)
		}
		return stored{string(records[0].Key), string(records[0].Value), headers}
	}}
}

func natsTarget(t *testing.T) target {
	t.Helper()
	s := natsServer(t, fmt.Sprintf(natsUsers, "right"))
	_, js := natsClient(t, s, nats.UserInfo("admin", "admin"))
	natsStream(t, js, nats.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	return target{destination.NatsJetStream, destination.Properties{
		Servers: []string{s.Addr().String()}, Subject: "events.a", Stream: "EVENTS",
	}, func() stored {
		info, err := js.StreamInfo("EVENTS")
		require.NoError(t, err)
		require.EqualValues(t, 1, info.State.Msgs)
		message, err := js.GetMsg("EVENTS", 1)
		require.NoError(t, err)
		headers := map[string]string{}
		for name, values := range message.Header {
			headers[name] = strings.Join(values, "|")
		}
		return stored{"", string(message.Data), headers}
	}}
}

const (
	engineData = `{"customer":"c 7","n":1.50e2}`
	engineBody = `{ "specversion":"1.0","id":"e1","source":"/s","type":"T","subject":"late","data":` + engineData + `}`
)

// An attempt with a wrong password is recorded, and retried by the policy. The password is then changed: the event is
// delivered by a new client. The engine closes the old one, and the new one when the event subscription is deleted.
func TestEngineDelivers(t *testing.T) {
	t.Parallel()
	for name, newTarget := range map[string]func(*testing.T) target{"kafka": kafkaTarget, "nats": natsTarget} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deliver(t, name, newTarget(t))
		})
	}
}

func deliver(t *testing.T, name string, broker target) {
	t.Helper()
	tn := testnode.New(t)
	tn.PutTopic(t, "orders", catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: engineevent.CloudEvents})
	soon := testnode.CopyNamed(t, policy.DefaultName, "soon")
	soon.Steps, soon.Tail = []policy.Seconds{policy.Seconds(time.Second)}, policy.Seconds(time.Second)
	soon.Probation = policy.Probation{Scope: policy.ProbationNone, Action: policy.ProbationHold}
	// 401 is then other.
	soon.Cells = slices.DeleteFunc(soon.Cells, func(c policy.Cell) bool { return c.Condition == "401" })
	for i := range soon.Cells {
		soon.Cells[i].MinDelay = 0
	}
	tn.PutPolicy(t, soon)
	value := "Shop 1"
	put := func(password string) {
		tn.Subscribe(t, "orders", name, func(s *catalog.SubscriptionSpec) {
			p := broker.properties
			p.TLS, p.Username, p.Password = new(bool), "u", password
			s.EndpointURL, s.EndpointKind, s.EventDeliverySchema = "", "", engineevent.CloudEvents
			s.Destination = &destination.Destination{EndpointType: broker.kind, Properties: &p}
			s.RetryPolicy.Policy = soon.Name
			s.DeliveryAttributes = []endpointconf.DeliveryAttribute{{
				Name: "shopName", Type: endpointconf.AttributeStatic,
				AttributeProperties: endpointconf.AttributeProperties{Value: &value},
			}}
		})
	}
	put("wrong")
	clients, opened := watch()
	tn.Start(t, func(o *jobs.Options) { o.Brokers = clients })
	tn.Send(t, testnode.Of("orders", engineevent.Event{
		Schema: engineevent.CloudEvents, ID: "e1", Type: "T", Source: "/s", Subject: "late", Body: []byte(engineBody),
	}))
	for number := 1; number <= 2; number++ {
		r := tn.Attempt(t)
		require.Equal(t, number, r.Number)
		require.Equal(t, policy.Result{Status: 401}, r.Result)
		require.Equal(t, policy.Retry, r.Verdict.Action)
		require.Equal(t, time.Second, r.Verdict.At.Sub(r.Now))
	}
	first := receive(t, "a client", opened)
	require.Empty(t, opened, "attempts share the client")

	put("right")
	r := tn.Attempt(t)
	for ; r.Result.Status == 401; r = tn.Attempt(t) { // one may have begun before
	}
	require.Equal(t, policy.Result{Status: 200}, r.Result)
	require.Equal(t, policy.Delivered, r.Verdict.Action)
	second := receive(t, "a client with the new password", opened)
	receive(t, "the first client is closed", first.closed)
	require.Equal(t, r.Number, tn.Count(t, `SELECT count(*) FROM postrider.delivery_attempts
		WHERE status = 401 AND verdict = 'retry' AND error LIKE '%credentials%'
		   OR status = 200 AND verdict = 'deliver' AND error IS NULL`))
	requireStored(t, tn, name, r.Number, broker.message())

	select {
	case <-second.closed:
		require.FailNow(t, "the client in use was closed")
	default:
	}
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", name))
	receive(t, "the second client is closed", second.closed)
	require.Empty(t, opened)
}

// requireStored checks the message of the event after that many attempts.
func requireStored(t *testing.T, tn *testnode.Node, name string, attempts int, got stored) {
	t.Helper()
	id := tn.Text(t, "SELECT event_uuid::text FROM postrider_internal.delivery_history")
	delivery := tn.Text(t, "SELECT id::text FROM postrider_internal.delivery_history")
	want := stored{"", engineBody, map[string]string{
		"aeg-event-type": "Notification", "aeg-subscription-name": strings.ToUpper(name),
		"aeg-delivery-count": fmt.Sprint(attempts - 1), "aeg-metadata-version": "1.0", "aeg-output-event-id": id,
		"shopName": "Shop 1",
	}}
	own := map[string]string{
		"Content-Type": cloudUTF8, "Nats-Msg-Id": id + "-" + delivery, "Nats-Expected-Stream": "EVENTS",
	}
	if name == "kafka" {
		want.key, want.body = "c 7", engineData
		own = map[string]string{
			"content-type": "application/json", "ce_specversion": "1.0", "ce_id": "e1", "ce_source": "/s", "ce_type": "T",
			"ce_subject": "late",
		}
	}
	maps.Copy(want.headers, own)
	require.Equal(t, want, got)
}
