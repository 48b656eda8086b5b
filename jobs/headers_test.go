package jobs_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/testnode"
	"postrider/jobs"
)

// sending sets custom headers.
func sending(list ...endpointconf.DeliveryAttribute) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) { s.DeliveryAttributes = list }
}

func staticHeader(name, value string) endpointconf.DeliveryAttribute {
	return endpointconf.DeliveryAttribute{
		Name: name, Type: endpointconf.AttributeStatic, AttributeProperties: endpointconf.AttributeProperties{Value: &value},
	}
}

func secretHeader(name, value string) endpointconf.DeliveryAttribute {
	a := staticHeader(name, value)
	a.IsSecret = true
	return a
}

func dynamicHeader(name, sourceField string) endpointconf.DeliveryAttribute {
	return endpointconf.DeliveryAttribute{
		Name: name, Type: endpointconf.AttributeDynamic,
		AttributeProperties: endpointconf.AttributeProperties{SourceField: sourceField},
	}
}

// custom returns the request's headers that begin with X-.
func (r request) custom() map[string]string {
	list := map[string]string{}
	for name, values := range r.header {
		if strings.HasPrefix(name, "X-") {
			list[name] = strings.Join(values, "|")
		}
	}
	return list
}

func TestCustomHeadersOfEachSchema(t *testing.T) {
	t.Parallel()
	custom := `"id":{"sourceField":"no"},"eventTime":{"sourceField":"at"},"eventType":{"sourceField":"kind"},` +
		`"subject":{"sourceField":"who"},"dataVersion":{"defaultValue":"3"}`
	for _, row := range []struct {
		schema      event.Schema
		input       func(*testing.T) *testnode.Node
		contentType string
		body        string
		headers     []endpointconf.DeliveryAttribute
		want        map[string]string
	}{
		{
			event.EventGrid, setup, jsonType, "[" +
				eventGridBody("7", `{"system":"crm","n":1.50,"deep":{"yes":true},"list":[1]}`) + "]",
			[]endpointconf.DeliveryAttribute{
				staticHeader("X-Fixed", "é v"), dynamicHeader("X-System", "data.system"), dynamicHeader("X-N", "data.n"),
				dynamicHeader("X-Yes", "Data.deep.yes"),
				dynamicHeader("X-Type", "eventtype"), dynamicHeader("X-Id", "id"), dynamicHeader("X-Topic", "topic"),
				dynamicHeader("X-Version", "dataversion"),
				dynamicHeader("X-None", "data.none"), dynamicHeader("X-List", "data.list"),
			},
			map[string]string{
				"X-Fixed": "é v", "X-System": "crm", "X-N": "1.50", "X-Yes": "true", "X-Type": "test", "X-Id": "7",
				"X-Topic": "/topics/orders", "X-Version": "2.1",
			},
		},
		{
			event.CustomInput, func(t *testing.T) *testnode.Node { return setupCustom(t, custom) }, jsonType,
			`{"no":7,"at":"2026-01-01T01:00:00.123456789+01:00","kind":"order","who":"me","total":1e3}`,
			[]endpointconf.DeliveryAttribute{
				dynamicHeader("X-Id", "id"), dynamicHeader("X-Time", "eventTime"), dynamicHeader("X-Type", "eventType"),
				dynamicHeader("X-Total", "total"), dynamicHeader("X-Data", "data.total"),
			},
			map[string]string{
				"X-Id": "7", "X-Time": "2026-01-01T00:00:00.123456Z", "X-Type": "order", "X-Total": "1e3", "X-Data": "1e3",
			},
		},
	} {
		t.Run(string(row.schema), func(t *testing.T) {
			t.Parallel()
			tn := row.input(t)
			e := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
			subscribe(t, tn, "all", e.URL, both(delivering(row.schema), sending(row.headers...)))
			tn.Start(t)
			publishBody(t, tn, row.contentType, row.body)
			tn.Attempt(t)
			travel(t, tn)
			tn.Attempt(t)
			seen := e.requests()
			require.Len(t, seen, 2)
			require.Equal(t, row.want, seen[0].custom())
			require.Equal(t, row.want, seen[1].custom(), "a retry sends what the first attempt sent")
			require.Equal(t, event.ContentType(row.schema, false), seen[0].header.Get("Content-Type"))
		})
	}
}

// All members of a batch have the header values of their request, also at the next attempt.
func TestCustomHeadersOfBatches(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
	headers := sending(staticHeader("X-Fixed", "v"), dynamicHeader("X-Kind", "data.kind"))
	subscribe(t, tn, "all", e.URL, both(batching(10, 64), headers))
	var list []string
	for i, data := range []string{`{"kind":"a"}`, `{"kind":"b"}`, `{}`, `{"kind":"a"}`, `{"kind":null}`, `{"kind":"b"}`} {
		list = append(list, eventGridBody(strconv.Itoa(i), data))
	}
	publishBody(t, tn, jsonType, "["+strings.Join(list, ",")+"]")
	tn.Start(t)
	tn.AttemptsMade(t, 3)
	require.Equal(t, 3, travel(t, tn))
	tn.AttemptsMade(t, 3)
	got := map[string]int{}
	for _, r := range e.requests() {
		got[strings.Join(r.ids(t), ",")+"="+r.custom()["X-Kind"]]++
		require.Equal(t, "v", r.custom()["X-Fixed"])
	}
	require.Equal(t, map[string]int{"0,3=a": 2, "1,5=b": 2, "2,4=": 2}, got)
	publishBody(t, tn, jsonType, "["+eventGridBody("lone", `{"kind":"c"}`)+"]")
	tn.Attempt(t)
	require.Equal(t, map[string]string{"X-Fixed": "v", "X-Kind": "c"}, e.requests()[6].custom(), "a batch of one")
	require.NotEmpty(t, e.requests()[6].header.Get("Aeg-Output-Event-Id"))
}

// Members that differ in a header that was added after their batch was cut leave it and are sent alone.
func TestDynamicHeaderAddedToABatch(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
	subscribe(t, tn, "all", e.URL, batching(10, 64))
	publishBody(t, tn, jsonType, "["+eventGridBody("1", `{"kind":"a"}`)+","+eventGridBody("2", `{"kind":"b"}`)+","+
		eventGridBody("3", `{"kind":"a"}`)+"]")
	tn.Start(t)
	tn.Attempt(t)
	subscribe(t, tn, "all", e.URL, both(batching(10, 64), sending(dynamicHeader("X-Kind", "data.kind"))))
	require.Equal(t, 1, travel(t, tn))
	tn.AttemptsMade(t, 2)
	got := map[string]string{}
	for _, r := range e.requests() {
		got[strings.Join(r.ids(t), ",")] = r.custom()["X-Kind"]
	}
	require.Equal(t, map[string]string{"1,2,3": "", "1,3": "a", "2": "b"}, got)
	require.Equal(t, 1, tn.Rows(t, "batch_members", "left_reason = 'HeaderValue'"))
}

// More events than one cut reads, of many values and sizes: every event is delivered once, with its own value.
func TestDynamicHeadersOfManyBatches(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, both(batching(20, 1024), sending(dynamicHeader("X-Kind", "data.kind"))))
	const large, small = 40, 1100
	for range large {
		id := uuid.NewString()
		publishBody(t, tn, jsonType, "["+eventGridBody(id, `{"kind":"`+id[:1]+`","fill":"`+strings.Repeat("x",
			400_000)+`"}`)+"]")
	}
	var list []string
	for range small {
		id := uuid.NewString()
		list = append(list, eventGridBody(id, `{"kind":"`+id[:1]+`"}`))
	}
	publishBody(t, tn, jsonType, "["+strings.Join(list, ",")+"]")
	tn.Start(t)
	tn.Become(t, large+small, deliveredInBatch)
	for _, r := range e.requests() {
		for _, id := range r.ids(t) {
			require.Equal(t, id[:1], r.custom()["X-Kind"])
		}
	}
	require.Less(t, len(e.requests()), 250, "events of one value go together")
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job")
}

// A custom header may replace the user agent. It replaces no header of ours, even if its name was reserved later.
func TestCustomHeadersThatReplace(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL+"/own",
		sending(staticHeader("user-agent", "shop/1"), secretHeader("authorization", "Bearer t"),
			staticHeader("Aeg-Event-Type", "theirs"), staticHeader("content-type", "text/plain")))
	subscribe(t, tn, "none", e.URL+"/none", nil)
	tn.Start(t, func(o *jobs.Options) { o.UserAgent = "postrider/test" })
	publishOne(t, tn, "1")
	tn.AttemptsMade(t, 2)
	for _, r := range e.requests() {
		require.Equal(t, []string{"Notification"}, r.header["Aeg-Event-Type"])
		require.Equal(t, []string{"application/json; charset=utf-8"}, r.header["Content-Type"])
		if r.uri == "/own" {
			require.Equal(t, []string{"shop/1"}, r.header["User-Agent"])
			require.Equal(t, []string{"Bearer t"}, r.header["Authorization"])
			continue
		}
		require.Equal(t, []string{"postrider/test"}, r.header["User-Agent"])
		require.NotContains(t, r.header, "Authorization", "no other event subscription's")
	}
}

// A changed setting applies from the next attempt on.
func TestCustomHeadersChange(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
	subscribe(t, tn, "all", e.URL, sending(staticHeader("X-A", "one")))
	tn.Start(t)
	publishOne(t, tn, "1")
	tn.Attempt(t)
	for _, next := range [][]endpointconf.DeliveryAttribute{{staticHeader("X-A", "two")}, nil} {
		subscribe(t, tn, "all", e.URL, sending(next...))
		travel(t, tn)
		tn.Attempt(t)
	}
	seen := e.requests()
	require.Len(t, seen, 3)
	require.Equal(t, []map[string]string{{"X-A": "one"}, {"X-A": "two"}, {}},
		[]map[string]string{seen[0].custom(), seen[1].custom(), seen[2].custom()})
}

// Only secrets are removed from stored responses, and only if there are any.
func TestResponsesAreStoredWithoutSecrets(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		w.Header().Set("X-Echo", r.header.Get("X-Secret"))
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte("got " + r.header.Get("X-Secret") + " and " + r.header.Get("X-Open") + " at " + r.uri))
	})
	subscribe(t, tn, "secret", e.URL+"/?code=12345678",
		sending(secretHeader("X-Secret", "hush"), staticHeader("X-Open", "open")))
	subscribe(t, tn, "open", e.URL+"/?code=1234567",
		sending(staticHeader("X-Secret", "hush"), staticHeader("X-Open", "open")))
	tn.Start(t)
	publishOne(t, tn, "1")
	tn.AttemptsMade(t, 2)
	const kept = `SELECT count(*) FROM postrider.delivery_attempts WHERE subscription = $1 AND response_excerpt = $2
		    AND response_headers LIKE '%X-Echo: ' || $3 || '%'`
	require.Equal(t, 1, tn.Count(t, kept, "secret", "got *** and open at /?code=***", "***"))
	require.Equal(t, 1, tn.Count(t, kept, "open", "got hush and open at /?code=1234567", "hush"))
}
