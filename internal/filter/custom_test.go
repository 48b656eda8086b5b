package filter_test

import (
	"testing"

	"postrider/internal/filter"

	"github.com/stretchr/testify/require"
)

// A custom event's envelope is from its topic's mapping, data is the whole object, other names are its own members.
func TestFilterCustomEvents(t *testing.T) {
	t.Parallel()
	view := &filter.EventView{
		Custom: true, Type: "mapped", ID: "1", Subject: "s", Topic: "/topics/orders", EventTime: "2026-01-01T00:00:00Z",
		Body: []byte(`{"data":{"total":1},"id":"own","eventType":"own","dataVersion":"own","eventTime":"own",` +
			`"metadataVersion":"own","type":"own","Type":"Own","total":5,"order":{"n":[7]}}`),
	}
	is := func(key, text string) string {
		return `{"operatorType":"StringIn","key":"` + key + `","values":["` + text + `"]}`
	}
	for _, row := range []struct {
		clause string
		want   bool
	}{
		{is("ID", "1"), true},
		{is("eventtype", "mapped"), true},
		{is("Subject", "s"), true},
		{is("topic", "/topics/orders"), true},
		{is("EventTime", "2026-01-01T00:00:00Z"), true},
		{is("metadataVersion", "1"), true},
		{`{"operatorType":"IsNullOrUndefined","key":"dataVersion"}`, true}, // it is not mapped
		{is("data.dataVersion", "own"), true},
		{is("data.id", "own"), true},
		{is("type", "own"), true},
		{is("data.Type", "Own"), true},
		{`{"operatorType":"NumberIn","key":"total","values":[5]}`, true},
		{`{"operatorType":"NumberIn","key":"data.total","values":[5]}`, true},
		{`{"operatorType":"NumberIn","key":"data.data.total","values":[1]}`, true},
		{`{"operatorType":"NumberIn","key":"Total","values":[5]}`, false},
		{`{"operatorType":"NumberIn","key":"order.n","values":[7]}`, true},
		{`{"operatorType":"IsNotNull","key":"data"}`, true},
	} {
		require.Equal(t, row.want, filterOf(t, true, row.clause).Matches(view), row.clause)
	}
	require.True(t, filterOf(t, true, is("id", "1"), `{"operatorType":"NumberIn","key":"data.total","values":[5]}`,
		`{"operatorType":"NumberIn","key":"total","values":[5]}`).Matches(view))
	for body, clause := range map[string]string{
		`"text"`:        is("data", "text"),
		`[5, 7]`:        `{"operatorType":"NumberIn","key":"data","values":[7]}`,
		`[{"total":5}]`: `{"operatorType":"IsNullOrUndefined","key":"total"}`,
		`1`:             is("id", "1"),
	} {
		view.Body = []byte(body)
		require.True(t, filterOf(t, true, clause).Matches(view), body)
		require.False(t, filterOf(t, true, `{"operatorType":"IsNotNull","key":"data.total"}`).Matches(view), body)
	}
}
