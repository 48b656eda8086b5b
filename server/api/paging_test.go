package api

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
)

// FuzzReadCursor: a cursor is rejected, or it has a key that PostgreSQL can store. The next cursor of that key has it
// too.
func FuzzReadCursor(f *testing.F) {
	for _, cursor := range []string{"", "ImJpbGxpbmci", "====", "_-_-", "AA", "/w==", "Ilx1MDAwMCI"} {
		f.Add(cursor)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		var after, next string
		if ReadCursor(&cursor, &after) != nil {
			return
		}
		require.True(t, Storable(after))
		link, err := url.Parse(*NextLink(t.Context(), &struct{}{}, after))
		require.NoError(t, err)
		again := link.Query().Get("cursor")
		require.NoError(t, ReadCursor(&again, &next))
		require.Equal(t, after, next)
	})
}

// conditions checks and reads the headers of a PUT.
func conditions(match, none *string) ([]postgres.Condition, error) {
	var found Problems
	if match != nil {
		found.checkCondition("If-Match", *match)
	}
	if none != nil {
		found.checkCondition("If-None-Match", *none)
	}
	return PutHeaders{IfMatchHeader{match}, none}.Conditions(), found.Err()
}

// FuzzConditions: each version in an accepted If-Match has a tag that reads as this version.
func FuzzConditions(f *testing.F) {
	for _, tag := range []string{
		"*", `"17"`, `"17","18"`, `W/"17"`, `""`, `"`, `"9223372036854775808"`, `"-1"`, "x", `"1" ,`,
	} {
		f.Add(tag, "*")
	}
	f.Add("", `"17"`)
	f.Fuzz(func(t *testing.T, match, none string) {
		when, err := conditions(&match, &none)
		if err != nil {
			return
		}
		for _, c := range when {
			for _, version := range c.Versions {
				tag := ETagOf(version)
				again, err := conditions(&tag, nil)
				require.NoError(t, err)
				require.Equal(t, []postgres.Version{version}, again[0].Versions)
			}
		}
	})
}

func TestConditions(t *testing.T) {
	t.Parallel()
	for header, versions := range map[string][]postgres.Version{
		`"17"`: {17}, `"17","18"`: {17, 18}, ` "17" , "18" `: {17, 18}, `W/"17"`: {}, `W/"17", "18"`: {18}, `"x"`: {},
		`"017"`: {}, `"17 "`: {}, `""`: {}, `"a,b", "3"`: {3},
	} {
		when, err := conditions(&header, nil)
		require.NoError(t, err, header)
		require.Equal(t, []postgres.Condition{{Versions: versions}}, when, header)
	}
	for _, header := range []string{"", "17", `"17`, `"17" "18"`, `*, "17"`, `"17";`, "null"} {
		_, err := conditions(&header, nil)
		var rejected *RejectionError
		require.ErrorAs(t, err, &rejected, header)
		require.Equal(t, "If-Match", rejected.Details[0].Target)
		_, err = conditions(nil, &header)
		require.ErrorAs(t, err, &rejected, header)
		require.Equal(t, "If-None-Match", rejected.Details[0].Target)
	}
	each := "*"
	when, err := conditions(&each, &each)
	require.NoError(t, err)
	require.Equal(t, []postgres.Condition{{Present: true}, {Absent: true}}, when)
	when, err = conditions(nil, nil)
	require.NoError(t, err)
	require.Empty(t, when)
}
