package filter_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"postrider/internal/filter"

	"github.com/stretchr/testify/require"
)

// oneKilobyte is an event of 1,024 bytes with the data that business events have: short members, some nesting, some
// text.
func oneKilobyte() filter.EventView {
	const head, tail = `{"id":"b68529f3","subject":"/shops/berlin/orders/4711","eventType":"Shop.OrderPlaced",` +
		`"eventTime":"2026-06-26T18:41:00.9584103Z","dataVersion":"1.0","data":` +
		`{"order":{"number":4711,"total":129.95,"currency":"EUR","paid":true,"coupon":null},"lines":[`, `"}}`
	body := head + strings.Repeat(`{"sku":"SKU-007919","quantity":2,"price":3.50},`, 8) + `{}],"note":"`
	return filter.EventView{
		ID: "b68529f3", Subject: "/shops/berlin/orders/4711", Type: "Shop.OrderPlaced", DataVersion: "1.0",
		Topic: "/topics/shop", Body: []byte(body + strings.Repeat("n", 1024-len(body)-len(tail)) + tail),
	}
}

// fiveClauses all match oneKilobyte, so that each is evaluated.
const fiveClauses = `{"advancedFilters":[
	{"operatorType":"NumberGreaterThan","key":"data.order.number","value":1000},
	{"operatorType":"NumberInRange","key":"data.order.total","values":[[1,99.5],[100,200]]},
	{"operatorType":"StringIn","key":"data.order.currency","values":["usd","eur"]},
	{"operatorType":"BoolEquals","key":"data.order.paid","value":true},
	{"operatorType":"StringContains","key":"subject","values":["/hamburg/","/BERLIN/"]}]}`

func parseFilter(tb testing.TB, text string) *filter.Filter {
	tb.Helper()
	var f filter.Filter
	require.NoError(tb, json.Unmarshal([]byte(text), &f))
	return &f
}

func benchmarkMatching(b *testing.B, matches int, filters ...*filter.Filter) {
	b.Helper()
	view, set, places := oneKilobyte(), filter.NewSet(filters), []int(nil)
	b.ReportAllocs()
	for b.Loop() {
		places = set.Matching(places[:0], &view)
	}
	require.Len(b, places, matches)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(filters)), "ns/filter")
}

// BenchmarkMatching is one event against one filter.
func BenchmarkMatching(b *testing.B) { benchmarkMatching(b, 1, parseFilter(b, fiveClauses)) }

// BenchmarkMatching100 is one event against the filters of 100 event subscriptions with the same keys.
func BenchmarkMatching100(b *testing.B) {
	filters := make([]*filter.Filter, 100)
	for i := range filters {
		filters[i] = parseFilter(b, strings.Replace(fiveClauses, "1000", fmt.Sprint(i), 1))
	}
	benchmarkMatching(b, 100, filters...)
}

// BenchmarkMatching100Keys is one event against 100 filters, each with another key.
func BenchmarkMatching100Keys(b *testing.B) {
	filters := make([]*filter.Filter, 100)
	for i := range filters {
		filters[i] = parseFilter(b,
			fmt.Sprintf(`{"advancedFilters":[{"operatorType":"IsNullOrUndefined","key":"data.order.key%d"}]}`, i))
	}
	benchmarkMatching(b, 100, filters...)
}

func BenchmarkNewFilterSet1000(b *testing.B) {
	filters := make([]*filter.Filter, 1000)
	for i := range filters {
		filters[i] = parseFilter(b, fiveClauses)
	}
	b.ReportAllocs()
	for b.Loop() {
		filter.NewSet(filters)
	}
}
