package api

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/postgres"
)

// FuzzReadPage: a cursor is refused or leads to a name that PostgreSQL can be asked for, and the cursor of that name is
// the same again.
func FuzzReadPage(f *testing.F) {
	for _, cursor := range []string{"", "YmlsbGluZw", "====", "_-_-", "AA", "/w==", "JyBPUiAxPTE7LS0"} {
		f.Add(cursor, 10)
	}
	f.Add("YQ", 0)
	f.Add("YQ", 1<<40)
	f.Fuzz(func(t *testing.T, cursor string, limit int) {
		p, err := ReadPage(&limit, &cursor)
		if err != nil {
			return
		}
		require.True(t, Storable(p.After))
		require.GreaterOrEqual(t, p.Limit, 1)
		require.LessOrEqual(t, p.Limit, maxPage)
		again := base64.RawURLEncoding.EncodeToString([]byte(p.After))
		next, err := ReadPage(nil, &again)
		require.NoError(t, err)
		require.Equal(t, p.After, next.After)
	})
}

// FuzzConditions: what is accepted in If-Match names versions that exist somewhere, and the tag of each reads as that
// version.
func FuzzConditions(f *testing.F) {
	for _, tag := range []string{
		"*", `"17"`, `"17","18"`, `W/"17"`, `""`, `"`, `"9223372036854775808"`, `"-1"`, "x", `"1" ,`,
	} {
		f.Add(tag, "*")
	}
	f.Add("", `"17"`)
	f.Fuzz(func(t *testing.T, match, none string) {
		when, err := Conditions(&match, &none)
		if err != nil {
			return
		}
		for _, c := range when {
			for _, version := range c.Versions {
				tag := ETagOf(version)
				again, err := Conditions(&tag, nil)
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
		when, err := Conditions(&header, nil)
		require.NoError(t, err, header)
		require.Equal(t, []postgres.Condition{{Versions: versions}}, when, header)
	}
	for _, header := range []string{"", "17", `"17`, `"17" "18"`, `*, "17"`, `"17";`, "null"} {
		_, err := Conditions(&header, nil)
		var refused *RejectionError
		require.ErrorAs(t, err, &refused, header)
		require.Equal(t, "If-Match", refused.Details[0].Target)
		_, err = Conditions(nil, &header)
		require.ErrorAs(t, err, &refused, header)
		require.Equal(t, "If-None-Match", refused.Details[0].Target)
	}
	each := "*"
	when, err := Conditions(&each, &each)
	require.NoError(t, err)
	require.Equal(t, []postgres.Condition{{Present: true}, {Absent: true}}, when)
	when, err = Conditions(nil, nil)
	require.NoError(t, err)
	require.Empty(t, when)
}
