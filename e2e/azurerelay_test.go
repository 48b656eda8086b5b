package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

const (
	relayGrid  = `{"relay":"azure"}`
	relayCloud = `{"relay":"azure","inputSchema":"CloudEventSchemaV1_0"}`

	azureGroup   = "/subscriptions/5b4b650e-28b9-4790-b3ab-ddbd88d727c4/resourceGroups/Shop/providers/"
	azureAccount = azureGroup + "Microsoft.Storage/storageAccounts/"
	azureTopic   = azureGroup + "Microsoft.EventGrid/topics/"
)

// relayFeed is an event subscription of Azure that delivers to a topic, and its events.
type relayFeed struct {
	azureSubscription
	topic  string
	events int
	write  func(feed *relayFeed, n int) *azureEvent
}

// relayFeeds deliver 10,000 events. The ids of some are the same in several sources.
func relayFeeds() []*relayFeed {
	return []*relayFeed{
		{azureSubscription{name: "blobs-one", source: azureAccount + "one", schema: azureGrid}, "orders", 1000, blobEvent},
		{
			azureSubscription{name: "blobs-two", source: azureAccount + "two", schema: azureGrid, batch: 10},
			"orders", 2000,
			blobEvent,
		},
		{
			azureSubscription{name: "Shop-Orders", source: azureTopic + "shop-orders", schema: azureGrid, batch: 25},
			"orders",
			2500, orderEvent,
		},
		{
			azureSubscription{name: "blobs-cloud", source: azureAccount + "three", schema: azureCloud},
			"cloud", 1000,
			convertedEvent,
		},
		{
			azureSubscription{name: "shop-cloud", source: azureTopic + "shop-cloud", schema: azureCloud, batch: 40},
			"cloud",
			2500, publishedCloudEvent,
		},
		{azureSubscription{
			name: "namespace", source: azureGroup + "Microsoft.EventGrid/namespaces/shop/topics/returns",
			schema: azureCloud, namespace: true,
		}, "cloud", 1000, namespaceEvent},
	}
}

// relayData has what a careless program would change.
const relayData = `{"n":1.50e2,"text":"\u00e9é\/","amount":9007199254740993.10}`

func relayTime(n int) string {
	return time.Date(2026, 1, 1, 0, 0, 0, n*100, time.UTC).Format(azureTime)
}

// blobEvent is one of a storage account, whose dataVersion is empty.
func blobEvent(feed *relayFeed, n int) *azureEvent {
	return feed.gridEvent(fmt.Sprintf("blob-%d", n), "Microsoft.Storage.BlobCreated", "", n)
}

// orderEvent is one of a custom topic.
func orderEvent(feed *relayFeed, n int) *azureEvent {
	return feed.gridEvent(uuid.NewString(), "Shop.OrderPlaced", "1.1", n)
}

func (feed *relayFeed) gridEvent(id, kind, dataVersion string, n int) *azureEvent {
	text := fmt.Sprintf(`{"id":%q,"eventTime":%q,"eventType":%q,"dataVersion":%q,"metadataVersion":"1","topic":%q,`+
		`"subject":"orders/%d","data":%s}`, id, relayTime(n), kind, dataVersion, feed.source, n, relayData)
	return &azureEvent{source: feed.source, id: id, text: text, dataVersion: dataVersion}
}

// convertedEvent was published in the Event Grid schema: its source is the ARM id.
func convertedEvent(feed *relayFeed, n int) *azureEvent {
	id := fmt.Sprintf("blob-%d", n)
	text := fmt.Sprintf(`{"id":%q,"source":%q,"type":"Microsoft.Storage.BlobCreated","specversion":"1.0",`+
		`"subject":"orders/%d","time":%q,"dataschema":"#","data":%s}`, id, feed.source, n, relayTime(n), relayData)
	return &azureEvent{source: feed.source, id: id, text: text}
}

// publishedCloudEvent was published as a CloudEvent: its source is the publisher's own.
func publishedCloudEvent(_ *relayFeed, n int) *azureEvent {
	id := fmt.Sprintf("blob-%d", n)
	text := fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/shop/eu","type":"shop.order.placed",`+
		`"region":"eu","time":%q,"data":%s}`, id, relayTime(n), relayData)
	return &azureEvent{source: "/shop/eu", id: id, text: text}
}

// namespaceEvent has JSON text in a string, which some subscriptions deliver.
func namespaceEvent(feed *relayFeed, n int) *azureEvent {
	id := uuid.NewString()
	text := fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/shop/us","type":"shop.order.returned",`+
		`"datacontenttype":"application/json","data":"{\"n\":%d}"}`, id, n)
	return &azureEvent{source: "/shop/us", id: id, text: text}
}

// connect gives the event subscription an endpoint, which is the topic's, and the simulated Azure.
func (feed *relayFeed) connect(a *azure, key string) {
	feed.azure = a
	feed.endpoint = "http://relay.example.com" + eventsPath(feed.topic) + "?aeg-sas-key=" + url.QueryEscape(key)
}

// publishPart publishes the events from one number to another.
func (feed *relayFeed) publishPart(from, to int) {
	events := make([]*azureEvent, 0, to-from)
	for n := from; n < to; n++ {
		events = append(events, feed.write(feed, n))
	}
	feed.publish(events...)
}

// relaySink is an endpoint that notes the bytes of each event that it received.
type relaySink struct {
	url string

	mu       sync.Mutex
	received map[relayKey]string
	changed  []string // received with different bytes at different times, or no event
}

func newRelaySink(t *testing.T) *relaySink {
	t.Helper()
	s := &relaySink{received: map[relayKey]string{}}
	server := httptest.NewServer(s)
	s.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return s
}

// ServeHTTP implements http.Handler.
func (s *relaySink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // a request that was cut
	}
	events, err := faultEvents(body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.changed = append(s.changed, string(body))
	}
	for _, event := range events {
		key := relayKeyOf(event)
		if before, again := s.received[key]; again && before != string(event) {
			s.changed = append(s.changed, string(event))
		}
		s.received[key] = string(event)
	}
}

// relayKeyOf reads the topic or the source, and the id.
func relayKeyOf(event []byte) relayKey {
	var e struct{ Topic, Source, ID string }
	if json.Unmarshal(event, &e) != nil {
		return relayKey{}
	}
	return relayKey{e.Topic + e.Source, e.ID} // an event has one of both
}

// storedRelayed are the texts of the stored events, and the keys of those stored more than once.
func storedRelayed(t *testing.T, db *database) (texts map[relayKey]string, twice []relayKey) {
	t.Helper()
	rows, err := db.pool.Query(t.Context(),
		"SELECT coalesce(body ->> 'topic', body ->> 'source', ''), event_id, body_text FROM postrider.events")
	require.NoError(t, err)
	defer rows.Close()
	texts = map[relayKey]string{}
	for rows.Next() {
		var key relayKey
		var text string
		require.NoError(t, rows.Scan(&key.source, &key.id, &text))
		if _, again := texts[key]; again {
			twice = append(twice, key)
		}
		texts[key] = text
	}
	require.NoError(t, rows.Err())
	return texts, twice
}

// requireRelayed compares the events found at some place with those that Azure had.
func requireRelayed(t *testing.T, where string, expected, found map[relayKey]string) {
	t.Helper()
	var missing, changed, foreign []string
	for key, text := range expected {
		got, has := found[key]
		switch {
		case !has:
			missing = append(missing, text)
		case got != text:
			changed = append(changed, text+" became "+got)
		}
	}
	for key, text := range found {
		if _, known := expected[key]; !known {
			foreign = append(foreign, text)
		}
	}
	require.Empty(t, firstOf(missing), "%s: %d events are missing", where, len(missing))
	require.Empty(t, firstOf(changed), "%s: %d events have other bytes", where, len(changed))
	require.Empty(t, firstOf(foreign), "%s: %d events were never in Azure", where, len(foreign))
}

// firstOf keeps a failure readable.
func firstOf(found []string) []string { return found[:min(len(found), 3)] }

// A topic that relays events of Azure is the webhook of six event subscriptions there. Its responses can be late, so
// that Azure delivers again what is stored already, and one of two nodes is killed and replaced. Each event is stored
// once and reaches the endpoint, byte for byte.
func TestAzureDeliversIntoARelayTopic(t *testing.T) {
	t.Parallel()
	db, sink := migratedDatabase(t), newRelaySink(t)
	stays, dies := startNode(t, db), startNode(t, db)
	keys := map[string]string{
		"orders": stays.makeTopic("orders", relayGrid), "cloud": stays.makeTopic("cloud", relayCloud),
	}
	stays.subscribeAs("orders", "billing", azureGrid, sink.url, 50)
	stays.subscribeAs("cloud", "archive", azureCloud, sink.url, 1)

	const seed = 20261129
	a := newAzure(t, 0.05, seed, address(stays), address(dies))
	feeds := relayFeeds()
	total := 0
	for _, feed := range feeds {
		feed.connect(a, keys[feed.topic])
		_, problem := feed.create(t.Context())
		require.Empty(t, problem, feed.name)
		feed.begin(t, 4)
		feed.publishPart(0, feed.events*6/10)
		total += feed.events
	}
	require.Equal(t, 10_000, total)
	eventually(t, "Azure has delivered 1,500 events", func() bool { return a.deliveredSoFar() >= 1500 })
	dies.kill()
	a.replace(address(dies), address(startNode(t, db)))
	for _, feed := range feeds {
		feed.publishPart(feed.events*6/10, feed.events)
	}
	eventually(t, "Azure has ended every event", a.ended)

	require.Empty(t, a.losses(), "no event is lost in Azure")
	require.Equal(t, total, a.deliveredSoFar())
	require.Positive(t, a.made("no response"), "the kill cut requests")
	require.Positive(t, a.made("cut after the response"), "Azure delivered again what it had delivered")
	t.Logf("attempts of events by outcome: %v", a.outcomes)
	eventually(t, "every event is routed", func() bool {
		return one[int](db, "SELECT count(*) FROM postrider.events WHERE matched IS NULL") == 0
	})
	db.drained()
	sink.mu.Lock()
	defer sink.mu.Unlock()
	stored, twice := storedRelayed(t, db)
	require.Empty(t, twice[:min(len(twice), 3)], "%d events are stored more than once", len(twice))
	requireRelayed(t, "postrider.events", a.sent, stored)
	require.Empty(t, firstOf(sink.changed))
	requireRelayed(t, "the endpoint", a.sent, sink.received)
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE state <> 'delivered'"))
}

// address is where a node listens.
func address(n *nodeProcess) string { return strings.TrimPrefix(n.api, "http://") }

// An endpoint is validated with the topic's key only, and neither validation nor the notice of a deletion is an event.
func TestAzureHandshakesWithARelayTopic(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db)
	custom := strings.Replace(conformanceMapping, "{", `{"relay":"azure",`, 1)
	keys := map[string]string{
		"orders": n.makeTopic("orders", relayGrid), "cloud": n.makeTopic("cloud", relayCloud),
		"custom": n.makeTopic("custom", custom),
	}
	feeds := append(relayFeeds(), &relayFeed{
		azureSubscription{name: "custom", source: azureTopic + "machines", schema: azureCustom}, "custom", 0, nil,
	})
	a := newAzure(t, 0, 0, address(n))
	for _, feed := range feeds {
		for _, key := range []string{"", keys[otherTopic(feed.topic)]} {
			feed.connect(a, key)
			response, problem := feed.validate(t.Context()) // once: an address may send 30 wrong keys
			require.NotEmpty(t, problem, feed.name)
			require.Equal(t, http.StatusUnauthorized, response.status, "%s: %s", feed.name, problem)
		}
		feed.connect(a, keys[feed.topic])
		response, problem := feed.create(t.Context())
		require.Empty(t, problem, feed.name)
		require.Equal(t, http.StatusOK, response.status, feed.name)
		if feed.schema == azureCloud {
			require.Contains(t, response.header.Get("Allow"), http.MethodPost, feed.name)
		}
		removed := feed.remove(t.Context())
		require.Equal(t, http.StatusOK, removed.status, "%s: %s", feed.name, removed.body)
	}
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider.events"))
}

// otherTopic is one whose key is wrong for the topic.
func otherTopic(topic string) string {
	if topic == "orders" {
		return "cloud"
	}
	return "orders"
}
