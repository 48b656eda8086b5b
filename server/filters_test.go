package server_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func withFilter(filter string) string {
	return `{"endpointUrl":"https://example.com","filter":` + filter + `}`
}

// A stored filter and one that is not stored yet can be tested, on events of every schema. internal/filter has the
// reasons.
func TestFilterIsTested(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	const settings = `{"subjectEndsWith":"1","advancedFilters":[{"key":"data.n","operatorType":"NumberLessThan",` +
		`"value":7}]}`
	s.subscription("orders", "billing", withFilter(settings))
	const stored, given = billing + "/testFilter", "/v1/topics/orders/testFilter"
	require.Equal(t, `{"value":[]}`, strings.TrimSpace(s.post(stored, "").body))
	s.events(key, "1", "2")
	const (
		newest = `{"clauses":[{"clause":"subjectEndsWith","passed":false,"why":"the subject is \"orders/2\", but must end ` +
			`with \"1\""},{"clause":"advancedFilters[0]","passed":false,"why":"data.n is 12345678901234567890, but must be ` +
			`less than 7"}],"id":"2","eventType":"Shop.OrderPlaced","subject":"orders/2","matched":false}`
		matched = `{"clauses":[{"clause":"subjectEndsWith","passed":true,"why":null},{"clause":"advancedFilters[0]",` +
			`"passed":true,"why":null}],"id":"9/1","eventType":"Shop.OrderPlaced","subject":"orders/9/1","matched":true}`
	)
	for path, with := range map[string]string{stored: "", given: `,"filter":` + settings} {
		require.Len(t, s.post(path, `{"last":50`+with+`}`).json(200)["value"], 2, path)
		require.JSONEq(t, `{"value":[`+newest+`]}`, s.post(path, `{"last":1`+with+`}`).body, path)
		event := strings.Replace(gridEvent("9/1"), "12345678901234567890", "6.99", 1)
		require.JSONEq(t, `{"value":[`+matched+`]}`, s.post(path, `{"event":`+event+with+`}`).body, path)
		for body, want := range map[string]string{
			`{"last":51}`:                        "last must be between 1 and 50, not 51",
			`{"last":1,"event":{}}`:              "last must be absent with event",
			`{"event":[]}`:                       "event must be an object: one event in schema EventGridSchema",
			`{"event":{"id":"1","subject":"s"}}`: "event.eventType: is required",
		} {
			require.Contains(t, s.post(path, body).is(400).body, want, body)
		}
	}
	require.Equal(t, 2, s.count("SELECT count(*) FROM postrider.events"), "nothing is stored")
	everything := s.post(given, "").json(200)["value"].([]any)
	require.Equal(t, []any{}, everything[0].(map[string]any)["clauses"], "no filter matches every event")
	rejected := s.post(given, `{"filter":{"includedEventTypes":[""]}}`).rejected(400, "InvalidRequest")
	require.Equal(t, []string{"filter.includedEventTypes[0]"}, targets(rejected), "the same checks as in a PUT")
	s.post("/v1/topics/nowhere/testFilter", "").rejected(404, "NotFound")

	own := s.topic("own", customTopic)
	s.topic("cloud", `{"kind":"namespace"}`)
	s.publish("own", own, `{"orderId":7}`).is(200)
	for topic, body := range map[string]string{
		"own": `{"filter":{"advancedFilters":[{"key":"data.orderId","operatorType":"NumberIn","values":[7]},{"key":"id",` +
			`"operatorType":"StringIn","values":["7"]}]}}`,
		"cloud": `{"event":` + cloudEvent("1") + `,"filter":{"advancedFilters":[{"key":"source","operatorType":"StringIn",` +
			`"values":["/shop"]}]}}`,
	} {
		tested := s.post("/v1/topics/"+topic+"/testFilter", body).json(200)
		require.Equal(t, true, tested["value"].([]any)[0].(map[string]any)["matched"], topic)
	}
}
