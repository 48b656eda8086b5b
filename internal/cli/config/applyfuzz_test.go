package config

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzReadApply: any file is read or rejected. The declared objects have names, appear once, and are checked without a
// panic.
func FuzzReadApply(f *testing.F) {
	applied, err := os.ReadFile("testdata/apply.yaml")
	require.NoError(f, err)
	for _, text := range []string{
		string(applied), "", "---\n---\n",
		"topics: [{name: a}]\n---\nsubscriptions: [{topic: a, name: b, endpointUrl: 'https://example.com/'}]", "a: &a [*a]",
		"a: &a {b: 1}\nc: {<<: *a}", "topics: {}", "[]", "!!binary aGFsbG8=",
		`[{"type":"Microsoft.EventGrid/eventSubscriptions","name":"a","destination":{"endpointType":"WebHook",` +
			`"endpointUrl":"https://example.com/"},"filter":{"advancedFilters":[{"operatorType":"NumberIn","key":"data.n",` +
			`"values":[1e400,9007199254740993]}]},"retryPolicy":{"maxDeliveryAttempts":30,"eventTimeToLiveInMinutes":1440}}]`,
		`{"value":[{"type":"microsoft.eventgrid/topics/eventsubscriptions","name":"a",` +
			`"properties":{"destination":{"properties":{"maxEventsPerBatch":1}}}}]}`,
	} {
		f.Add(text, "orders")
		f.Add(text, "")
	}
	f.Fuzz(func(t *testing.T, text, topic string) {
		read, err := readApply([]byte(text), topic)
		if err != nil {
			return
		}
		seen := map[key]bool{}
		for i := range read.objects {
			d := &read.objects[i]
			require.NotEmpty(t, d.name)
			require.False(t, seen[d.key])
			seen[d.key] = true
			_, _ = validated(d)
			for _, line := range diff(tables[d.kind], nil, d.settings) {
				require.NotContains(t, line.String(), "\x1b", "nothing in a file controls the terminal")
			}
		}
	})
}
