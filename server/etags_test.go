package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of two changes to the same version, the second is rejected. So is the second of two creations. server/api has the
// forms of the headers.
func TestEtags(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const endpoint = `{"endpointUrl":"https://example.com/in"}`
	for _, row := range []struct{ path, body, changed string }{
		{"/v1/topics/orders", `{}`, `{"duplicateDetectionWindowInMinutes":5}`},
		{billing, endpoint, `{"endpointUrl":"https://example.com/in","labels":["a"]}`},
		{"/v1/policies/mine", `{}`, `{"stepsInSeconds":[7]}`},
		{"/v1/users/anna", `{"role":"viewer","password":"correct horse battery"}`, `{"role":"operator"}`},
	} {
		put := func(body, header, value string) response {
			return s.manage(http.MethodPut, row.path, body, header, value)
		}
		remove := func(value string) response { return s.manage(http.MethodDelete, row.path, "", "If-Match", value) }
		put(row.body, "If-Match", "*").rejected(412, "PreconditionFailed")
		made := put(row.body, "If-None-Match", "*")
		first := made.json(201)["etag"].(string)
		require.Regexp(t, `^"[0-9]+"$`, first)
		require.Equal(t, first, made.header.Get("ETag"))
		require.Contains(t, put(row.body, "If-None-Match", "*").rejected(412, "PreconditionFailed").Message, "exists already")
		got := s.get(row.path)
		require.Equal(t, []any{first, first}, []any{got.header.Get("ETag"), got.json(200)["etag"]})
		list, _ := s.listAll(row.path[:strings.LastIndex(row.path, "/")], "etag")
		require.Equal(t, first, list[len(list)-1], row.path)

		changed := put(row.changed, "If-Match", `"x", `+first)
		second := changed.json(200)["etag"].(string)
		require.NotEqual(t, first, second)
		require.Equal(t, second, changed.header.Get("ETag"))
		for _, match := range []string{first, "W/" + second} {
			require.Contains(t, put(row.changed, "If-Match", match).rejected(412, "PreconditionFailed").Message, "If-Match")
			remove(match).rejected(412, "PreconditionFailed")
		}
		require.Equal(t, []string{"If-None-Match"},
			targets(put(row.changed, "If-None-Match", second).rejected(400, "InvalidRequest")))
		require.Equal(t, []string{"If-Match"}, targets(remove("1").rejected(400, "InvalidRequest")))
		require.Equal(t, second, s.get(row.path).header.Get("ETag"), "a rejected request changes nothing")
		put(row.changed, "If-Match", "*").is(200)
	}

	etag := s.get(billing).header.Get("ETag")
	s.post(billing+"/pause", "").json(200)
	require.Equal(t, etag, s.get(billing).header.Get("ETag"), "a pause is no setting")
	patch := func(body, match string) response { return s.manage(http.MethodPatch, billing, body, "If-Match", match) }
	patch(`{}`, `"1"`).rejected(412, "PreconditionFailed")
	patched := patch(`{"labels":["b"]}`, etag)
	require.Equal(t, patched.json(200)["etag"], patched.header.Get("ETag"))
	patch(`{}`, etag).rejected(412, "PreconditionFailed")
	for path, again := range map[string]string{billing: endpoint, "/v1/policies/mine": `{}`} {
		last := s.get(path).header.Get("ETag")
		s.manage(http.MethodDelete, path, "", "If-Match", last).is(204)
		s.manage(http.MethodDelete, path, "", "If-Match", last).rejected(404, "NotFound")
		require.NotEqual(t, last, s.put(path, again).json(201)["etag"], "created again, it is another")
	}
}
