package filter_test

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"postrider/internal/filter"

	"github.com/stretchr/testify/require"
)

// naiveMatches is the rule of advanced filters again, by encoding/json, rational numbers and lower-case copies.
func naiveMatches(t *testing.T, f *filter.Filter, view *filter.EventView) bool {
	t.Helper()
	for _, a := range f.AdvancedFilters {
		v, attribute := naiveValue(t, view, a.Key)
		if !naiveHolds(t, a, f.EnableAdvancedFilteringOnArrays, v, attribute) {
			return false
		}
	}
	return true
}

// naiveValue is nil for null and missing values.
func naiveValue(t *testing.T, view *filter.EventView, key string) (v any, attribute bool) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(view.Body))
	decoder.UseNumber()
	var event map[string]any
	require.NoError(t, decoder.Decode(&event))
	event["id"], event["subject"] = view.ID, view.Subject
	if view.CloudEvent {
		event["type"], event["source"] = view.Type, view.Source
	} else {
		event["eventType"], event["topic"] = view.Type, view.Topic
	}
	if view.CloudEvent && view.Subject == "" {
		delete(event, "subject")
	}
	path := strings.Split(strings.NewReplacer("ID", "id", "Data", "data").Replace(key), ".")
	v = event
	for _, name := range path {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v, view.CloudEvent && key == "ext"
}

func naiveHolds(t *testing.T, a filter.AdvancedFilter, arrays bool, v any, attribute bool) bool {
	t.Helper()
	negated := strings.Contains(a.OperatorType, "Not")
	positive := strings.Replace(a.OperatorType, "Not", "", 1)
	if list, ok := v.([]any); ok && strings.HasPrefix(positive, "Is") {
		return negated
	} else if ok {
		met := false
		for _, element := range list {
			is, meets := naiveMeets(t, positive, a, element, false)
			met = met || is && meets
		}
		return arrays && met != negated
	}
	is, meets := naiveMeets(t, positive, a, v, attribute)
	if !is {
		return negated && (strings.HasPrefix(positive, "Number") || positive == "StringIn")
	}
	return meets != negated
}

// naiveMeets reports whether v is of the operator's kind, and whether it meets the operator without its Not.
func naiveMeets(t *testing.T, positive string, a filter.AdvancedFilter, v any, attribute bool) (is, meets bool) {
	t.Helper()
	switch positive[0] {
	case 'I':
		return true, v == nil
	case 'B':
		truth, is := v.(bool)
		return is, is && truth == (string(a.Value) == "true")
	case 'N':
		n, is := v.(json.Number)
		return is, is && naiveNumber(t, positive, a, naiveRat(t, n.String()))
	}
	text, is := v.(string)
	if attribute && v != nil && !is {
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		text, is = string(raw), true
	}
	for _, raw := range a.Values {
		var operand string
		require.NoError(t, json.Unmarshal(raw, &operand))
		compare := map[string]func(a, b string) bool{
			"StringContains": strings.Contains, "StringBeginsWith": strings.HasPrefix, "StringEndsWith": strings.HasSuffix,
			"StringIn": strings.EqualFold,
		}[positive]
		meets = meets || is && compare(strings.ToLower(text), strings.ToLower(operand))
	}
	return is, meets
}

func naiveRat(t *testing.T, text string) *big.Rat {
	t.Helper()
	r, ok := new(big.Rat).SetString(text)
	require.True(t, ok, text)
	return r
}

func naiveNumber(t *testing.T, positive string, a filter.AdvancedFilter, n *big.Rat) (meets bool) {
	t.Helper()
	if len(a.Values) == 0 {
		order := n.Cmp(naiveRat(t, string(a.Value)))
		return order < 0 && strings.Contains(positive, "Less") || order > 0 && strings.Contains(positive, "Greater") ||
			order == 0 && strings.Contains(positive, "Equals")
	}
	for _, raw := range a.Values {
		ends := strings.Split(strings.Trim(string(raw), "[]"), ",")
		from, to := naiveRat(t, ends[0]), naiveRat(t, ends[len(ends)-1])
		meets = meets || n.Cmp(from) >= 0 && n.Cmp(to) <= 0
	}
	return meets
}
