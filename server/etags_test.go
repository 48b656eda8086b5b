package server_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of two changes to the same version, the second is rejected. So is the second of two creations.
func TestEtags(t *testing.T) {
	t.Parallel()
	s := setup(t)
	with := func(method, path, body string, headers ...string) response {
		return s.send(method, path, body, append(headers, "Authorization", "Bearer "+adminToken)...)
	}
	const (
		orders, subscriptions = "/v1/topics/orders", "/v1/topics/orders/subscriptions"
		deliveryEndpoint      = `{"endpointUrl":"https://example.com/in"}`
	)
	for _, row := range []struct{ path, list, body, changed string }{
		{orders, "/v1/topics", `{}`, `{"duplicateDetectionWindowInMinutes":5}`},
		{billing, subscriptions, deliveryEndpoint, `{"endpointUrl":"https://example.com/in","labels":["a"]}`},
		{"/v1/policies/mine", "/v1/policies", `{}`, `{"stepsInSeconds":[7]}`},
		{"/v1/users/anna", "/v1/users", `{"role":"viewer","password":"correct horse battery"}`, `{"role":"operator"}`},
	} {
		for _, match := range []string{"*", `"1"`} {
			with(http.MethodPut, row.path, row.body, "If-Match", match).rejected(412, "PreconditionFailed")
		}
		made := with(http.MethodPut, row.path, row.body, "If-None-Match", "*")
		first := made.json(201)["etag"].(string)
		require.Regexp(t, `^"[0-9]+"$`, first)
		require.Equal(t, first, made.header.Get("ETag"))
		rejection := with(http.MethodPut, row.path, row.body, "If-None-Match", "*").rejected(412, "PreconditionFailed")
		require.Contains(t, rejection.Message, "exists already")
		for range 2 {
			got := s.get(row.path)
			require.Equal(t, first, got.header.Get("ETag"))
			require.Equal(t, first, got.json(200)["etag"])
		}
		listed := s.get(row.list).json(200)["value"].([]any)
		require.Equal(t, first, listed[len(listed)-1].(map[string]any)["etag"], row.list)

		changed := with(http.MethodPut, row.path, row.changed, "If-Match", `"x", `+first)
		second := changed.json(200)["etag"].(string)
		require.NotEqual(t, first, second)
		require.Equal(t, second, changed.header.Get("ETag"))
		for _, match := range []string{first, "W/" + second, `"x"`} {
			rejected := with(http.MethodPut, row.path, row.changed, "If-Match", match).rejected(412, "PreconditionFailed")
			require.Contains(t, rejected.Message, "If-Match")
			with(http.MethodDelete, row.path, "", "If-Match", match).rejected(412, "PreconditionFailed")
		}
		reject := func(method, body, header, value string) {
			rejected := with(method, row.path, body, header, value).rejected(400, "InvalidRequest")
			require.Equal(t, []string{header}, targets(rejected), row.path)
		}
		reject(http.MethodPut, row.changed, "If-Match", "1")
		reject(http.MethodPut, row.changed, "If-None-Match", second)
		reject(http.MethodDelete, "", "If-Match", "1")
		require.Equal(t, second, s.get(row.path).header.Get("ETag"), "a rejected request changes nothing")
		with(http.MethodPut, row.path, row.changed, "If-Match", "*").is(200)
	}

	etag := s.get(billing).header.Get("ETag")
	s.post(billing+"/pause", "").json(200)
	require.Equal(t, etag, s.get(billing).header.Get("ETag"), "a pause is no setting")
	with(http.MethodPatch, billing, `{}`, "If-Match", `"1"`).rejected(412, "PreconditionFailed")
	patched := with(http.MethodPatch, billing, `{"labels":["b"]}`, "If-Match", etag)
	require.Equal(t, patched.json(200)["etag"], patched.header.Get("ETag"))
	require.NotEqual(t, etag, patched.header.Get("ETag"))
	with(http.MethodPatch, billing, `{}`, "If-Match", etag).rejected(412, "PreconditionFailed")
	for _, method := range []string{http.MethodPatch, http.MethodDelete} {
		with(method, subscriptions+"/nothing", "", "If-Match", "*").rejected(404, "NotFound")
	}
	for path, again := range map[string]string{billing: deliveryEndpoint, "/v1/policies/mine": `{}`} {
		last := s.get(path).header.Get("ETag")
		with(http.MethodDelete, path, "", "If-Match", last).is(204)
		with(http.MethodDelete, path, "", "If-Match", last).rejected(404, "NotFound")
		require.NotEqual(t, last, s.put(path, again).json(201)["etag"], "created again, it is another")
	}
	with(http.MethodDelete, "/v1/users/anna", "", "If-Match", s.get("/v1/users/anna").header.Get("ETag")).is(204)
}
