package event

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sampleDeadLetter has the values of Microsoft's sample (Event Grid message delivery and retry, 2020-10-29), for our
// topic.
func sampleDeadLetter(schema, delivery Schema, body string) DeadLetter {
	return DeadLetter{
		Event: Event{Schema: schema, Body: []byte(body)}, Topic: "myTopic", Delivery: delivery,
		Reason: "MaxDeliveryAttemptsExceeded", Attempts: 1, Outcome: "NotFound", Status: 404,
		PublishedAt:   time.Date(2020, 8, 13, 17, 18, 14, 26_575_800, time.UTC),
		LastAttemptAt: time.Date(2020, 8, 13, 17, 18, 14, 46_578_800, time.UTC),
	}
}

const (
	sampleEventGrid = `{"id":"93902694-901e-008f-6f95-7153a806873c","eventTime":"2020-08-13T17:18:13.1647262Z",` +
		`"eventType":"Microsoft.Storage.BlobCreated","dataVersion":"","metadataVersion":"1","topic":"/topics/myTopic",` +
		`"subject":"/blobServices/default/x","data":{"api":"PutBlob"}}`
	sampleCloudEvents = `{"specversion":"1.0","id":"caee971c","source":"mysource","subject":"mySubject",` +
		`"type":"fooEventType","datacontenttype":"application/json","data":{"prop1":"value1","prop2":5}}`
)

func TestDeadLetterRecords(t *testing.T) {
	t.Parallel()
	custom := sampleDeadLetter(Custom, CustomInput, `{"prop1":"my property","prop2":5,"myEventType":"fooEventType"}`)
	custom.Event.ID, custom.Event.Type, custom.Event.Subject, custom.Event.DataVersion = "8bc07e6f", "fooEventType",
		"subjectDefault", "1.0"
	custom.Event.Time = time.Date(2020, 8, 13, 18, 11, 29, 412_139_100, time.UTC)
	never := sampleDeadLetter(EventGrid, EventGrid,
		`{"id":"1","subject":"s","eventType":"t","eventTime":"2026-01-01T00:00:00Z"}`)
	never.Reason, never.Attempts, never.Outcome, never.Status, never.LastAttemptAt = "TimeToLiveExceeded", 0, "", 0,
		time.Time{}
	around := sampleDeadLetter(CloudEvents, CloudEvents, sampleCloudEvents)
	around.Reason = "Maximum delivery attempts was exceeded."
	const (
		beside = `"deadLetterReason":"MaxDeliveryAttemptsExceeded","deliveryAttempts":1,"lastDeliveryOutcome":"NotFound",` +
			`"lastHttpStatusCode":404,"publishTime":"2020-08-13T17:18:14.0265758Z",` +
			`"lastDeliveryAttemptTime":"2020-08-13T17:18:14.0465788Z"}`
		small = `"deadletterreason":"MaxDeliveryAttemptsExceeded","deliveryattempts":1,"lastdeliveryoutcome":"NotFound",` +
			`"lasthttpstatuscode":404,"publishtime":"2020-08-13T17:18:14.0265758Z",` +
			`"lastdeliveryattempttime":"2020-08-13T17:18:14.0465788Z"}`
	)
	for name, c := range map[string]struct {
		letter DeadLetter
		form   DeadLetterForm
		want   string
	}{
		"Event Grid": {
			sampleDeadLetter(EventGrid, EventGrid, sampleEventGrid), DeadLetterFlat,
			sampleEventGrid[:len(sampleEventGrid)-1] + "," + beside,
		},
		"Event Grid, with what a delivery adds": {
			sampleDeadLetter(EventGrid, EventGrid, `{ "id" : "1" , "data" : { "b" : [ 1.0 ] } }`), DeadLetterFlat,
			`{"id":"1","data":{ "b" : [ 1.0 ] },"topic":"/topics/myTopic","metadataVersion":"1","dataVersion":"",` + beside,
		},
		"CloudEvents": {
			sampleDeadLetter(CloudEvents, CloudEvents, sampleCloudEvents), DeadLetterFlat,
			sampleCloudEvents[:len(sampleCloudEvents)-1] + "," + small,
		},
		"Event Grid, delivered as CloudEvents": {
			sampleDeadLetter(EventGrid, CloudEvents,
				`{"id":"1","eventType":"t","subject":"s","eventTime":"2026-01-01T00:00:00Z","data":{}}`), DeadLetterFlat,
			`{"specversion":"1.0","source":"/topics/myTopic","id":"1","type":"t","subject":"s","time":"2026-01-01T00:00:00Z",` +
				`"datacontenttype":"application/json","data":{},` + small,
		},
		"custom, delivered as it came": {
			custom, DeadLetterFlat,
			`{"id":"8bc07e6f","eventTime":"2020-08-13T18:11:29.4121391Z","eventType":"fooEventType","dataVersion":"1.0",` +
				`"metadataVersion":"1","topic":"/topics/myTopic","subject":"subjectDefault",` +
				`"data":{"prop1":"my property","prop2":5,"myEventType":"fooEventType"},` + beside,
		},
		"never attempted": {
			never, DeadLetterFlat,
			`{"id":"1","subject":"s","eventType":"t","eventTime":"2026-01-01T00:00:00Z","topic":"/topics/myTopic",` +
				`"metadataVersion":"1","dataVersion":"","deadLetterReason":"TimeToLiveExceeded","deliveryAttempts":0,` +
				`"publishTime":"2020-08-13T17:18:14.0265758Z"}`,
		},
		"published again": {
			sampleDeadLetter(CloudEvents, CloudEvents, `{"deadletterreason":"old","id":"1","deliveryattempts":9,`+
				`"\u0070ublishtime":"old","specversion":"1.0","deadLetterReason":"other name"}`), DeadLetterFlat,
			`{"id":"1","specversion":"1.0","deadLetterReason":"other name",` + small,
		},
		"namespace": {
			around, DeadLetterNested,
			`{"deadLetterProperties":{"deadletterreason":"Maximum delivery attempts was exceeded.","deliveryattempts":1,` +
				`"deliveryresult":"NotFound",` +
				`"publishutc":"2020-08-13T17:18:14.0265758Z","deliveryattemptutc":"2020-08-13T17:18:14.0465788Z"},"event":` +
				sampleCloudEvents + `}`,
		},
	} {
		got, err := AppendDeadLetter([]byte("before"), &c.letter, c.form)
		require.NoError(t, err, name)
		require.Equal(t, "before"+c.want, string(got), name)
		require.True(t, json.Valid(got[len("before"):]), name)
	}
}

func TestDeadLetterOfInvalidEvent(t *testing.T) {
	t.Parallel()
	for name, letter := range map[string]DeadLetter{
		"a list":                   sampleDeadLetter(EventGrid, EventGrid, `[]`),
		"a CloudEvent cut short":   sampleDeadLetter(CloudEvents, CloudEvents, `{"id":`),
		"custom without an id":     sampleDeadLetter(Custom, CustomInput, `{}`),
		"an input that is unknown": sampleDeadLetter("Other", EventGrid, `{}`),
	} {
		got, err := AppendDeadLetter([]byte("before"), &letter, DeadLetterFlat)
		require.Error(t, err, name)
		require.Equal(t, "before", string(got), name)
	}
}
