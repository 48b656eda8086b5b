package event

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAccept(t *testing.T) {
	t.Parallel()
	const rejected = shape(-1)
	for _, c := range []struct {
		contentType         string
		eventGrid, cloudEvs shape
	}{
		{"application/json", eventArray, oneEventOrArray},
		{"application/json; charset=utf-8", eventArray, oneEventOrArray},
		{"Application/JSON;charset=UTF-8", eventArray, oneEventOrArray},
		{`application/json; charset="utf-8"; odata.metadata=minimal`, eventArray, oneEventOrArray},
		{"application/json; charset=us-ascii", eventArray, oneEventOrArray},
		{"application/json; charset=iso-8859-1", eventArray, rejected},
		{"application/json; charset=utf-16", eventArray, rejected},
		{"application/json; charset=", eventArray, rejected},
		{"application/json; charset=utf-8; charset=utf-16", eventArray, rejected},
		{"", eventArray, rejected},
		{"application/x-www-form-urlencoded", eventArray, rejected},
		{"multipart/form-data; boundary=x", eventArray, rejected},
		{"application/cloudevents+json", rejected, oneEvent},
		{"application/cloudevents+json; charset=utf-8", rejected, oneEvent},
		{"application/cloudevents+json; charset=US-ASCII", rejected, oneEvent},
		{"application/cloudevents+json; charset=iso-8859-1", rejected, rejected},
		{"application/cloudevents-batch+json", rejected, eventArray},
		{"application/cloudevents-batch+json; charset=utf-8", rejected, eventArray},
		{"APPLICATION/CLOUDEVENTS-BATCH+JSON", rejected, eventArray},
		{"application/cloudevents+xml", rejected, rejected},
		{"application/cloudevents", rejected, rejected},
		{"application/problem+json", eventArray, rejected},
		{"application/*", eventArray, rejected},
		{"application/json, text/plain", eventArray, rejected},
		{"text/plain", eventArray, rejected},
		{"text/json", eventArray, rejected},
		{"application/cloud", eventArray, rejected},
		{";", eventArray, rejected},
	} {
		custom := c.eventGrid
		if custom == eventArray {
			custom = oneEventOrArray
		}
		for schema, want := range map[Schema]shape{EventGrid: c.eventGrid, CloudEvents: c.cloudEvs, Custom: custom} {
			got, err := accept(schema, c.contentType)
			if want != rejected {
				require.NoError(t, err, "%s %q", schema, c.contentType)
				require.Equal(t, want, got, "%s %q", schema, c.contentType)
				continue
			}
			var rejection *Error
			require.ErrorAs(t, err, &rejection, "%s %q", schema, c.contentType)
			require.Equal(t, 415, rejection.Status)
			require.Equal(t, CodeUnsupportedMediaType, rejection.Code)
			require.Equal(t, -1, rejection.Index)
		}
	}
}

func TestAcceptErrorNamesTypes(t *testing.T) {
	t.Parallel()
	for _, schema := range []Schema{EventGrid, Custom} {
		_, err := accept(schema, "application/cloudevents+json")
		require.EqualError(t, err, `content type "application/cloudevents+json" is not accepted: a topic with input schema `+
			string(schema)+` takes JSON; publish CloudEvents to a topic with input schema CloudEventSchemaV1_0`)
	}
	_, err := parseBody(CloudEvents, "text/plain", []byte(cloudOne), "orders", Limits{})
	require.EqualError(t, err,
		`content type "text/plain" is not accepted: a topic with input schema CloudEventSchemaV1_0 `+
			`takes application/cloudevents+json, application/cloudevents-batch+json or application/json in utf-8, `+
			`and any other type with the attributes in ce- headers`)
	_, err = accept(EventGrid, structuredPrefix+strings.Repeat("x", 10000))
	require.Less(t, len(err.Error()), 300)
}
