package management

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/cmd/postrider/terminal"
	"postrider/server/management"
)

// FuzzReadApply: whatever a file says, it is read or refused; what it asks for has names, is there once, and is judged
// without a mishap.
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
		seen := map[string]bool{}
		for _, w := range read.wanted {
			require.NotEmpty(t, w.name)
			require.False(t, seen[w.kind+"\n"+w.topic+"\n"+w.name])
			seen[w.kind+"\n"+w.topic+"\n"+w.name] = true
			body, err := terminal.EncodePlainly(w.settings)
			require.NoError(t, err)
			switch w.kind {
			case kindPolicy:
				_, _ = management.ReadPolicy(w.name, body)
			case kindTopic:
				_, _ = management.ReadTopic(w.name, body)
			case kindSubscription:
				_ = management.CheckSubscription(w.name, body)
			}
			for _, line := range diff(nil, w.settings) {
				require.NotContains(t, line.String(), "\x1b", "nothing in a file writes to the terminal as it likes")
			}
		}
	})
}
