package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/policy"
	v1 "postrider/server/v1"
)

// A policy that is read can be written under another name, and decides the same.
func TestPolicies(t *testing.T) {
	t.Parallel()
	s := setup(t)
	asJSON := func(p *policy.Policy) (members map[string]any) {
		text, err := json.Marshal(v1.DescribePolicy(p, 0))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &members))
		return members
	}
	list := s.get("/v1/policies").json(200)["value"].([]any)
	for i, built := range policy.Builtins() {
		shown, path := list[i].(map[string]any), fmt.Sprintf("/v1/policies/copy-%d", i)
		original := s.get("/v1/policies/" + built.Name)
		require.Equal(t, shown, original.json(200))
		require.NotEmpty(t, shown["etag"])
		delete(shown, "etag") // which the program's own list has not
		require.Equal(t, asJSON(&built), shown)
		require.Equal(t, built.Name == policy.DefaultName, shown["isDefault"])
		require.Equal(t, built.MaxAttempts.Default == 0, shown["maxDeliveryAttempts"].(map[string]any)["default"] == nil,
			"no limit is null")

		made := s.put(path, original.body).json(201)
		require.Equal(t, made, s.get(path).json(200))
		delete(made, "etag")
		want := maps.Clone(shown)
		want["name"], want["builtIn"], want["isDefault"] = fmt.Sprintf("copy-%d", i), false, false
		require.Equal(t, want, made)
		own, ok := s.store.Cache.Snapshot().Policy(fmt.Sprintf("copy-%d", i))
		require.True(t, ok)
		require.Equal(t, want, asJSON(own))
	}
	require.Len(t, s.get("/v1/policies").json(200)["value"], 2*len(policy.Builtins()))
}

// server/v1 has the mistakes of each setting, and internal/catalog what policies in use keep.
func TestPolicyRejections(t *testing.T) {
	t.Parallel()
	s := setup(t)
	rejection := s.put("/v1/policies/mine", `{"expiry":"x","tailInSeconds":-1}`).rejected(400, "InvalidRequest")
	require.ElementsMatch(t, []string{"expiry", "tailInSeconds"}, targets(rejection))
	for _, name := range []string{"ab", "postrider.mine", "m%20e", "a%00b"} {
		rejection := s.put("/v1/policies/"+name, "{}").rejected(400, "InvalidRequest")
		require.Equal(t, []string{"name"}, targets(rejection), name)
	}
	require.Equal(t, 6, s.count("SELECT count(*) FROM postrider_internal.retry_policies"))

	const path = "/v1/policies/mine"
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		rejection := s.manage(method, "/v1/policies/ga-2021", "{}").rejected(409, "PolicyBuiltIn")
		require.Equal(t, `retry policy "ga-2021" is built in and never changes: copy it under another name`,
			rejection.Message)
	}
	s.topic("orders", "")
	s.put("/v1/policies/bare", "").json(201)
	made := s.put(path, "{}").json(201)
	for _, other := range []string{`{"name":"other","builtIn":true,"isDefault":true,"etag":"x"}`, `{"probation":null}`} {
		again := s.put(path, other).json(200)
		made["etag"] = again["etag"]
		require.Equal(t, made, again, "name and state of a policy are no settings")
	}
	made["name"], made["etag"] = "bare", s.get("/v1/policies/bare").json(200)["etag"]
	require.Equal(t, made, s.get("/v1/policies/bare").json(200), "without a body, all settings have their defaults")
	s.subscription("orders", "billing", `{"endpointUrl":"https://example.com","maxEventsPerBatch":2,`+
		`"retryPolicy":{"policy":"mine"}}`)
	const used = `retry policy "mine" is used by event subscriptions (1): orders/billing`
	require.Equal(t, used, s.delete(path).rejected(409, "PolicyInUse").Message)
	require.Equal(t, "batching must stay true: "+used,
		s.put(path, `{"batching":false}`).rejected(409, "PolicyInUse").Message)
	s.put(path, `{"maxDeliveryAttempts":{"default":2,"most":5},"eventTimeToLiveInMinutes":{"default":60,"most":60}}`).
		json(200)
	require.Equal(t, map[string]any{"policy": "mine", "maxDeliveryAttempts": 2.0, "eventTimeToLiveInMinutes": 60.0},
		s.get(billing).json(200)["retryPolicy"], "the limits in force")
	s.delete(billing).is(204)
	s.delete(path).is(204)
	s.get(path).rejected(404, "NotFound")
}

func TestExamplePoliciesAreAccepted(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("../deploy/examples/policies")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		body, err := os.ReadFile("../deploy/examples/policies/" + file.Name())
		require.NoError(t, err)
		_, err = v1.ReadPolicy(strings.TrimSuffix(file.Name(), ".json"), body)
		require.NoError(t, err, file.Name())
	}
}
