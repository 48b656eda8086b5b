package web

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/store"
)

// Whoever may only look may send no form.
func TestEveryFormNeedsARole(t *testing.T) {
	t.Parallel()
	for path, form := range new(pages).forms() {
		require.True(t, form.needs.Allows(store.RoleOperator), path)
		require.NotNil(t, form.handle, path)
	}
}

func TestFieldOfAMistake(t *testing.T) {
	t.Parallel()
	fields := []string{"name", "filter.advancedFilters", "filter.advancedFilters[0].key", "filter.advancedFilters[0].value", "filter.advancedFilters[1].key", "labels", "retryPolicy.eventTimeToLiveInMinutes.days", "deadLetterDestination.properties.url"}
	for target, want := range map[string]string{
		"name": "name", "labels[3]": "labels", "filter.advancedFilters[0].values[2]": "filter.advancedFilters[0].value", "filter.advancedFilters[1]": "filter.advancedFilters", "filter.advancedFilters[1].key": "filter.advancedFilters[1].key",
		"retryPolicy.eventTimeToLiveInMinutes": "retryPolicy.eventTimeToLiveInMinutes.days", "deadLetterDestination.properties": "deadLetterDestination.properties.url", "nothing": "", "": "", "lab": "",
	} {
		require.Equal(t, want, fieldOf(target, fields), target)
	}
}

func TestDollarQuotedEndsWhereItShould(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a": "$event$a$event$", "": "$event$$event$", "$event$": "$event1$$event$$event1$", "a$event": "$event1$a$event$event1$", "$event1$ $event": "$event2$$event1$ $event$event2$",
	} {
		require.Equal(t, want, dollarQuoted(text))
	}
}
