package web

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFieldOfError(t *testing.T) {
	t.Parallel()
	fields := []string{
		"name", "filter.advancedFilters", "filter.advancedFilters[0].key", "filter.advancedFilters[0].value",
		"filter.advancedFilters[1].key", "labels", "retryPolicy.eventTimeToLiveInMinutes",
		"deadLetterDestination.properties.url",
	}
	for target, want := range map[string]string{
		"name": "name", "labels[3]": "labels", "filter.advancedFilters[0].values[2]": "filter.advancedFilters[0].value",
		"filter.advancedFilters[1]":            "filter.advancedFilters",
		"filter.advancedFilters[1].key":        "filter.advancedFilters[1].key",
		"retryPolicy.eventTimeToLiveInMinutes": "retryPolicy.eventTimeToLiveInMinutes",
		"deadLetterDestination.properties":     "deadLetterDestination.properties.url", "nothing": "", "": "", "lab": "",
	} {
		require.Equal(t, want, fieldOf(target, fields), target)
	}
}

// formLink is a link to a form that changes the configuration.
var formLink = regexp.MustCompile(`<a [^>]*href="[^"]*/(new|edit|keys|delete|publish|new-topic)["?][^>]*>`)

// Links to admin forms have the class that hides them from other roles.
func TestFormLinksNeedAdmin(t *testing.T) {
	t.Parallel()
	names, err := files.ReadDir("templates")
	require.NoError(t, err)
	links := 0
	for _, file := range names {
		text, err := files.ReadFile("templates/" + file.Name())
		require.NoError(t, err)
		for _, link := range formLink.FindAllString(string(text), -1) {
			require.Contains(t, link, "needs-admin", file.Name())
			links++
		}
	}
	require.Greater(t, links, 12)
}
