package kafka

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/destination"
)

const (
	jsonUTF8  = "application/json; charset=utf-8"
	cloudUTF8 = "application/cloudevents+json; charset=utf-8"
)

// describe writes a record as key|value|name=value,….
func describe(t *testing.T, m *destination.Message, binary bool) string {
	t.Helper()
	r, err := newRecord(m, binary)
	require.NoError(t, err)
	require.NotNil(t, r.Value, "null deletes the key of a compacted topic")
	var headers []string
	for _, h := range r.Headers {
		headers = append(headers, h.Key+"="+string(h.Value))
	}
	key := string(r.Key)
	if r.Key == nil {
		key = "none"
	}
	return key + "|" + string(r.Value) + "|" + strings.Join(headers, ",")
}

func TestRecord(t *testing.T) {
	t.Parallel()
	const head = `{"specversion":"1.0","id":"1","source":"/s","type":"T"`
	const headers = "ce_id=1,ce_source=/s,ce_specversion=1.0,ce_type=T"
	for _, tt := range []struct {
		name, contentType, body string
		binary                  bool
		want                    string
	}{
		{"structured", cloudUTF8, head + `,"data":1}`, false, `none|` + head + `,"data":1}|content-type=` + cloudUTF8},
		{"Event Grid schema", jsonUTF8, `{"id":"1"}`, false, `none|{"id":"1"}|content-type=` + jsonUTF8},
		{"Event Grid schema in binary mode", jsonUTF8, `{"id":"1"}`, true, `none|{"id":"1"}|content-type=` + jsonUTF8},
		{
			"binary: data are JSON by default", cloudUTF8, head + `,"data": {"n": 1.0} }`, true,
			`none|{"n": 1.0}|content-type=application/json,` + headers,
		},
		{
			"a JSON text stays JSON", cloudUTF8, head + `,"datacontenttype":"application/vnd.x+json","data":"a"}`, true,
			`none|"a"|content-type=application/vnd.x+json,` + headers,
		},
		{
			"a text of another media type", cloudUTF8, head + `,"datacontenttype":"text/plain","data":"a\nü"}`, true,
			"none|a\nü|content-type=text/plain," + headers,
		},
		{
			"an object of another media type", cloudUTF8, head + `,"datacontenttype":"text/plain","data":{}}`, true,
			"none|{}|content-type=text/plain," + headers,
		},
		{
			"data_base64", cloudUTF8, head + `,"datacontenttype":"image/png","data_base64":"AAEC"}`, true,
			"none|\x00\x01\x02|content-type=image/png," + headers,
		},
		{"no data", cloudUTF8, head + `}`, true, "none||" + headers},
		{"data of null", cloudUTF8, head + `,"data":null,"subject":null}`, true, "none||" + headers},
		{
			"extensions", cloudUTF8, head + `,"azone":true,"bcount":12,"ctext":"\"x\""}`, true,
			`none||ce_azone=true,ce_bcount=12,ce_ctext="x",` + headers,
		},
	} {
		m := &destination.Message{ID: "d", Body: []byte(tt.body), ContentType: tt.contentType}
		require.Equal(t, tt.want, describe(t, m, tt.binary), tt.name)
	}
}

func TestRecordKeyAndAttributes(t *testing.T) {
	t.Parallel()
	m := &destination.Message{
		Body: []byte(`{}`), ContentType: jsonUTF8, Key: []byte("k"),
		Attributes: []destination.Attribute{
			{Name: "aeg-event-type", Value: "Notification"}, {Name: "X-Team", Value: "a"}, {Name: "x-team", Value: "b"},
		},
	}
	require.Equal(t, "k|{}|content-type="+jsonUTF8+",aeg-event-type=Notification,X-Team=a,x-team=b",
		describe(t, m, false), "letter case is kept")
	m.Key = []byte{}
	require.True(t, strings.HasPrefix(describe(t, m, false), "|"), "an empty key is a key")
}

func TestRecordOfMalformedCloudEvent(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`[]`, `{"data_base64":"?"}`, `{"data_base64":1}`} {
		_, err := newRecord(&destination.Message{Body: []byte(body), ContentType: cloudUTF8}, true)
		require.Error(t, err, body)
	}
}
