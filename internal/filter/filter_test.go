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
	tests := []struct {
		name      string
		filter    filter.Filter
		eventType string
		subject   string
		want      bool
	}{
		{"no filter matches everything", filter.Filter{}, created, "/a", true},
		{"no filter matches an empty subject", filter.Filter{}, "", "", true},
		{"an empty list matches everything", filter.Filter{IncludedEventTypes: []string{}}, created, "", true},
		{"All matches everything", filter.Filter{IncludedEventTypes: []string{"All"}}, created, "", true},
		{"all in lower case is an event type", filter.Filter{IncludedEventTypes: []string{"all"}}, created, "", false},
		{"a listed event type", filter.Filter{IncludedEventTypes: []string{deleted, created}}, created, "", true},
		{"an event type not listed", filter.Filter{IncludedEventTypes: []string{deleted}}, created, "", false},
		{
			"event types are exact in case",
			filter.Filter{IncludedEventTypes: []string{created}},
			strings.ToLower(created),
			"", false,
		},
		{"event types are exact in length", filter.Filter{IncludedEventTypes: []string{"Contoso."}}, created, "", false},
		{"subject begins with", filter.Filter{SubjectBeginsWith: "/blobServices/"}, created, "/blobServices/x.jpg", true},
		{
			"subject does not begin with", filter.Filter{SubjectBeginsWith: "/blobServices/"}, created, "x/blobServices/", false,
		},
		{"subject shorter than the prefix", filter.Filter{SubjectBeginsWith: "/blob"}, created, "/blo", false},
		{"subject ends with", filter.Filter{SubjectEndsWith: ".jpg"}, created, "/x.jpg", true},
		{"subject does not end with", filter.Filter{SubjectEndsWith: ".jpg"}, created, "/x.jpg.txt", false},
		{"subject shorter than the suffix", filter.Filter{SubjectEndsWith: ".jpg"}, created, "jpg", false},
		{
			"case does not matter by default",
			filter.Filter{SubjectBeginsWith: "/A", SubjectEndsWith: ".JPG"},
			created,
			"/a.jpg", true,
		},
		{
			"case matters if required",
			filter.Filter{SubjectBeginsWith: "/A", IsSubjectCaseSensitive: true},
			created,
			"/a.jpg", false,
		},
		{
			"same case if required",
			filter.Filter{SubjectEndsWith: ".jpg", IsSubjectCaseSensitive: true},
			created,
			"/a.jpg", true,
		},
		{"no wildcards", filter.Filter{SubjectBeginsWith: "/a*"}, created, "/abc", false},
		{
			"prefix and suffix may overlap",
			filter.Filter{SubjectBeginsWith: "aba", SubjectEndsWith: "aba"},
			created,
			"aba", true,
		},
		{"both must hold", filter.Filter{SubjectBeginsWith: "/a", SubjectEndsWith: ".jpg"}, created, "/b.jpg", false},
		{
			"event type and subject must hold",
			filter.Filter{IncludedEventTypes: []string{created}, SubjectBeginsWith: "/a"},
			deleted, "/a", false,
		},
		{"other alphabets have cases too", filter.Filter{SubjectBeginsWith: "/ÄRGER/ΩΜΈΓΑ"}, created, "/ärger/ωμέγα/1", true},
		{"cases of different length", filter.Filter{SubjectBeginsWith: "/k"}, created, "/\u212a1", true},
		{"cases of different length at the end", filter.Filter{SubjectEndsWith: "\u212a"}, created, "/k", true},
		{"a broken character is none", filter.Filter{SubjectBeginsWith: "é"}, created, "\xc3", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, tt.filter.Matches(&filter.EventView{Type: tt.eventType, Subject: tt.subject}))
		})
	}
}

func TestFilterValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		filter filter.Filter
		field  string
	}{
		{"no filter", filter.Filter{}, ""},
		{"All", filter.Filter{IncludedEventTypes: []string{"All"}}, ""},
		{
			"some", filter.Filter{IncludedEventTypes: []string{"a", "b", "a"}, SubjectBeginsWith: "/", SubjectEndsWith: "ä"}, "",
		},
		{"an empty event type", filter.Filter{IncludedEventTypes: []string{"a", ""}}, "filter.includedEventTypes[1]"},
		{"All among others", filter.Filter{IncludedEventTypes: []string{"All", "a"}}, "filter.includedEventTypes[0]"},
		{"a null character", filter.Filter{IncludedEventTypes: []string{"a\x00"}}, "filter.includedEventTypes[0]"},
		{"a broken prefix", filter.Filter{SubjectBeginsWith: "\xff"}, "filter.subjectBeginsWith"},
		{"a broken suffix", filter.Filter{SubjectEndsWith: "\x00"}, "filter.subjectEndsWith"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.filter.Validate()
			if tt.field == "" {
				require.NoError(t, err)
				return
			}
			requireField(t, err, tt.field)
		})
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

func BenchmarkFilterMatches(b *testing.B) {
	f := filter.Filter{
		IncludedEventTypes: []string{"Contoso.Items.Deleted", "Contoso.Items.Created"},
		SubjectBeginsWith:  "/blobservices/default/containers/", SubjectEndsWith: ".JPG",
	}
	view := filter.EventView{
		Type: "Contoso.Items.Created", Subject: "/blobServices/default/containers/pictures/blobs/2026/01/31/photo.jpg",
	}
	b.ReportAllocs()
	for b.Loop() {
		f.Matches(&view)
	}
}
