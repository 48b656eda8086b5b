package filter_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"postrider/internal/filter"

	"github.com/stretchr/testify/require"
)

func TestFilterMatches(t *testing.T) {
	t.Parallel()
	const created, deleted = "Contoso.Items.Created", "Contoso.Items.Deleted"
	types := func(names ...string) filter.Filter { return filter.Filter{IncludedEventTypes: names} }
	begins := func(prefix string) filter.Filter { return filter.Filter{SubjectBeginsWith: prefix} }
	ends := func(suffix string) filter.Filter { return filter.Filter{SubjectEndsWith: suffix} }
	both := func(prefix, suffix string) filter.Filter {
		return filter.Filter{SubjectBeginsWith: prefix, SubjectEndsWith: suffix}
	}
	exact := func(f filter.Filter) filter.Filter { f.IsSubjectCaseSensitive = true; return f }
	for _, tt := range []struct {
		name               string
		filter             filter.Filter
		eventType, subject string
		want               bool
	}{
		{"no filter matches everything", filter.Filter{}, created, "/a", true},
		{"no filter matches an empty subject", filter.Filter{}, "", "", true},
		{"an empty list matches everything", filter.Filter{IncludedEventTypes: []string{}}, created, "", true},
		{"All matches everything", types("All"), created, "", true},
		{"all in lower case is an event type", types("all"), created, "", false},
		{"a listed event type", types(deleted, created), created, "", true},
		{"an event type not listed", types(deleted), created, "", false},
		{"event types are exact in case", types(created), strings.ToLower(created), "", false},
		{"event types are exact in length", types("Contoso."), created, "", false},
		{"subject begins with", begins("/blobServices/"), created, "/blobServices/x.jpg", true},
		{"subject does not begin with", begins("/blobServices/"), created, "x/blobServices/", false},
		{"subject shorter than the prefix", begins("/blob"), created, "/blo", false},
		{"subject ends with", ends(".jpg"), created, "/x.jpg", true},
		{"subject does not end with", ends(".jpg"), created, "/x.jpg.txt", false},
		{"subject shorter than the suffix", ends(".jpg"), created, "jpg", false},
		{"case does not matter by default", both("/A", ".JPG"), created, "/a.jpg", true},
		{"case matters if required", exact(begins("/A")), created, "/a.jpg", false},
		{"same case if required", exact(ends(".jpg")), created, "/a.jpg", true},
		{"no wildcards", begins("/a*"), created, "/abc", false},
		{"prefix and suffix may overlap", both("aba", "aba"), created, "aba", true},
		{"both must hold", both("/a", ".jpg"), created, "/b.jpg", false},
		{
			"event type and subject must hold",
			filter.Filter{IncludedEventTypes: []string{created}, SubjectBeginsWith: "/a"},
			deleted, "/a", false,
		},
		{"other alphabets have cases too", begins("/ÄRGER/ΩΜΈΓΑ"), created, "/ärger/ωμέγα/1", true},
		{"cases of different length", begins("/k"), created, "/\u212a1", true},
		{"cases of different length at the end", ends("\u212a"), created, "/k", true},
		{"a broken character is none", begins("é"), created, "\xc3", false},
	} {
		require.Equal(t, tt.want, tt.filter.Matches(&filter.EventView{Type: tt.eventType, Subject: tt.subject}), tt.name)
	}
}

func TestFilterValidate(t *testing.T) {
	t.Parallel()
	for field, invalid := range map[string]filter.Filter{
		"filter.includedEventTypes[1]": {IncludedEventTypes: []string{"a", ""}},
		"filter.includedEventTypes[0]": {IncludedEventTypes: []string{"All", "a"}},
		"filter.includedEventTypes[2]": {IncludedEventTypes: []string{"a", "b", "c\x00"}},
		"filter.subjectBeginsWith":     {SubjectBeginsWith: "\xff"},
		"filter.subjectEndsWith":       {SubjectEndsWith: "\x00"},
	} {
		requireField(t, invalid.Validate(), field)
	}
	for _, valid := range []filter.Filter{
		{},
		{IncludedEventTypes: []string{"All"}},
		{IncludedEventTypes: []string{"a", "b", "a"}, SubjectBeginsWith: "/", SubjectEndsWith: "ä"},
	} {
		require.NoError(t, valid.Validate())
	}
}

func TestFilterAsJSON(t *testing.T) {
	t.Parallel()
	var f filter.Filter
	require.NoError(t,
		json.Unmarshal([]byte(`{"includedEventTypes":null,"subjectBeginsWith":"/a","isSubjectCaseSensitive":true}`), &f))
	require.True(t, f.Matches(&filter.EventView{Type: "anything", Subject: "/a"}))
	require.False(t, f.Matches(&filter.EventView{Type: "anything", Subject: "/A"}))
	text, err := json.Marshal(filter.Filter{})
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(text))
}

// FuzzFilterMatches compares the folding that does not allocate with the plain definition: the same number of
// characters, equal under folding.
func FuzzFilterMatches(f *testing.F) {
	f.Add("/blobServices/x.jpg", "/BLOB", ".JPG")
	f.Add("\u212a", "k", "K")
	f.Add("", "a", "")
	f.Fuzz(func(t *testing.T, subject, prefix, suffix string) {
		if !utf8.ValidString(subject) || !utf8.ValidString(prefix) || !utf8.ValidString(suffix) {
			return // Validate rejects it, and JSON is UTF-8
		}
		all, head, tail := []rune(subject), []rune(prefix), []rune(suffix)
		want := len(all) >= len(head) && strings.EqualFold(string(all[:min(len(head), len(all))]), prefix) &&
			len(all) >= len(tail) && strings.EqualFold(string(all[max(0, len(all)-len(tail)):]), suffix)
		ends := filter.Filter{SubjectBeginsWith: prefix, SubjectEndsWith: suffix}
		view := filter.EventView{Subject: subject}
		require.Equal(t, want, ends.Matches(&view))
		ends.IsSubjectCaseSensitive = true
		require.Equal(t, strings.HasPrefix(subject, prefix) && strings.HasSuffix(subject, suffix), ends.Matches(&view))
	})
}
