package server

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/store"
)

// FuzzReadPage: a cursor is refused or leads to a name that PostgreSQL can be asked for, and the cursor of that name is the same again.
func FuzzReadPage(f *testing.F) {
	for _, cursor := range []string{"", "YmlsbGluZw", "====", "_-_-", "AA", "/w==", "JyBPUiAxPTE7LS0"} {
		f.Add(cursor, 10)
	}
	f.Add("YQ", 0)
	f.Add("YQ", 1<<40)
	f.Fuzz(func(t *testing.T, cursor string, limit int) {
		p, err := readPage(&limit, &cursor)
		if err != nil {
			return
		}
		require.True(t, storable(p.after))
		require.GreaterOrEqual(t, p.limit, 1)
		require.LessOrEqual(t, p.limit, maxPage)
		again := base64.RawURLEncoding.EncodeToString([]byte(p.after))
		next, err := readPage(nil, &again)
		require.NoError(t, err)
		require.Equal(t, p.after, next.after)
	})
}

// FuzzConditions: what is accepted in If-Match names versions that exist somewhere, and the tag of each reads as that version.
func FuzzConditions(f *testing.F) {
	for _, tag := range []string{"*", `"17"`, `"17","18"`, `W/"17"`, `""`, `"`, `"9223372036854775808"`, `"-1"`, "x", `"1" ,`} {
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
				tag := etagOf(version)
				again, err := conditions(&tag, nil)
				require.NoError(t, err)
				require.Equal(t, []int64{version}, again[0].Versions)
			}
		}
	})
}

// FuzzIdempotencyKey: a key is taken as it is, or refused.
func FuzzIdempotencyKey(f *testing.F) {
	for _, key := range []string{"", "a", `"quoted"`, "\x00", "é", "a, b"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, given string) {
		key, err := idempotencyKey(http.Header{"Idempotency-Key": {given}})
		if err != nil {
			require.Empty(t, key)
			return
		}
		require.Equal(t, given, key)
		require.NotEmpty(t, key)
		require.LessOrEqual(t, len(key), store.MaxIdempotencyKey)
	})
}

// FuzzMerge: a patch of JSON makes JSON, and made twice it makes the same.
func FuzzMerge(f *testing.F) {
	f.Add(`{"a":{"b":1}}`, `{"a":{"b":null,"c":[1]}}`)
	f.Add(`[]`, `{"a":null}`)
	f.Add(`{"a":1}`, `1e999`)
	f.Fuzz(func(t *testing.T, target, patch string) {
		if !json.Valid([]byte(target)) || !json.Valid([]byte(patch)) {
			return
		}
		once, err := merge(json.RawMessage(target), json.RawMessage(patch))
		require.NoError(t, err)
		require.True(t, json.Valid(once))
		twice, err := merge(once, json.RawMessage(patch))
		require.NoError(t, err)
		require.Equal(t, strings.TrimSpace(string(once)), strings.TrimSpace(string(twice)))
	})
}
