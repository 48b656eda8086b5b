package server_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/server"
	"postrider/server/api"
	v1 "postrider/server/v1"
)

// apply applies a configuration. query is the request's.
func (s *service) apply(query, body string, headers ...string) (changes v1.ConfigurationChanges, made []string) {
	s.t.Helper()
	r := s.manage(http.MethodPost, "/v1/apply?"+query, body, headers...).is(200)
	require.NoError(s.t, json.Unmarshal([]byte(r.body), &changes))
	require.Equal(s.t, changes.ETag, r.header.Get("ETag"))
	for i := range changes.Changes {
		c := &changes.Changes[i]
		made = append(made, strings.TrimSpace(c.Change+" "+c.Title()+map[bool]string{true: " applied"}[c.Applied]))
		for _, p := range c.Properties {
			made = append(made, strings.TrimSpace(p.Property+": "+p.Before+" > "+p.After))
		}
	}
	return changes, made
}

// The response has the mistakes of all objects, and nothing is stored.
func TestApplyFindsAllMistakes(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("taken", "")
	for body, mistakes := range map[string][]string{
		`{"topic": [], "queue": []}`: {"topic is not a member; the members are: policies, subscriptions, topics", "queue is"},
		`{"topics": 5}`:              {"topics must be an array"},
		`{"topics": [5]}`:            {"topics[0]|the body must be a JSON object"},
		`{"topics":[{"name":"abc","subscriptions":[{"name":"s-1","endpointUrl":"https://example.com/"}]},
			{"name":"abc","subscriptions":[{"name":"s-2","endpointUrl":"https://example.com/"}]}]}`: {
			"topics[1]|topic abc: name is duplicate",
		},
		`{"policies":[{"name":"p-1","stepsInSeconds":[0]},{"name":"p-1"},{"name":"ga-2021"},{"name":"P-1"},{}],
			"topics":[{"name":"abc","subscriptions":[
				{"name":"s-1","retryPolicy":{"policy":"p-2"},"filter":{"advancedFilters":[{"key":"data.a","operatorType":"Like"}]}},
				{"name":"s-1","topic":"abc"},{"name":"a b","endpointUrl":"https://example.com/","endpoint":1}]},
				{"name":"TAKEN"},{"name":"a b","kind":"other","eventRetentionInDays":3}],
			"subscriptions":[{"name":"x-1","endpointUrl":"https://example.com/"},{"name":"x-1","topic":"none"}]}`: {
			"policies[0]|policy p-1: stepsInSeconds",
			"policies[2]|policy ga-2021: name is that of a built-in policy, which never changes",
			"policies[4]|name must be 3 to 64 characters",
			"topics[1]|topic TAKEN: name conflicts with \"taken\": names must not differ only in letter case",
			"topics[2]|topic a b: topic must",
			"topics[2]|topic a b: kind must be basic or namespace", "topics[2]|topic a b: eventRetentionInDays must be absent",
			"topics[0].subscriptions[0]|subscription abc/s-1: endpointUrl is required",
			"topics[0].subscriptions[0]|subscription abc/s-1: filter.advancedFilters[0].operatorType",
			"topics[0].subscriptions[0]|subscription abc/s-1: retryPolicy.policy must be one of",
			"topics[0].subscriptions[1]|subscription abc/s-1: topic must be absent",
			"topics[0].subscriptions[2]|subscription abc/a b: endpoint is not a member",
			"subscriptions[0]|subscription x-1: topic is required",
			"subscriptions[1]|subscription none/x-1: topic must exist",
		},
		`{"topics":[{"name":"taken","kind":"namespace"}]}`: {
			`topics[0]|topic taken: kind cannot be changed once the topic exists: "basic" → "namespace"`, "inputSchema",
		},
	} {
		for _, query := range []string{"", "?dryRun=true"} {
			found := s.post("/v1/apply"+query, body).rejected(400, "InvalidRequest").Details
			for _, mistake := range mistakes {
				target, message, named := strings.Cut(mistake, "|")
				if !named {
					target, message = "", mistake
				}
				require.True(t, slices.ContainsFunc(found, func(d api.ErrorDetail) bool {
					return strings.Contains(d.Message, message) && (target == "" || d.Target == target)
				}), "%s: %v", mistake, found)
			}
		}
	}
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.topics WHERE topic <> 'postrider.system'"))
}

// A dry run shows the changes. With its etag, exactly these are made.
func TestApplyMakesTheChangesOfItsDryRun(t *testing.T) {
	t.Parallel()
	s := setup(t)
	file := `{"policies":[{"name":"steps","stepsInSeconds":[1, 2],"maxDeliveryAttempts":{"default":4,"most":40},
		"eventTimeToLiveInMinutes":{"default":60,"most":5000}}],
		"topics":[{"name":"orders","kind":"namespace","eventRetentionInDays":2,"subscriptions":[{"name":"one",
			"endpointUrl":"https://example.com/in?code=secret","endpointValidation":"skip",
			"retryPolicy":{"policy":"steps","maxDeliveryAttempts":35,"eventTimeToLiveInMinutes":2000},
			"deliveryAttributeMappings":[{"name":"X-S","type":"Static","properties":{"value":"s3cret","isSecret":true}}],
			"oauth2":{"tokenUrl":"https://login.example.com/","scope":"<a>","clientId":"c","clientSecret":"s3cret-1"}}]}]}`
	plan, shown := s.apply("dryRun=true", file)
	created := []string{
		"create policy steps", "eventTimeToLiveInMinutes.default:  > 60",
		"eventTimeToLiveInMinutes.most:  > 5000", "maxDeliveryAttempts.default:  > 4", "maxDeliveryAttempts.most:  > 40",
		"stepsInSeconds:  > [1,2]",
		"create topic orders", "eventRetentionInDays:  > 2", `kind:  > "namespace"`,
		"create subscription orders/one",
		`deliveryAttributeMappings:  > [{"name":"X-S","type":"Static","properties":{"value":"***","isSecret":true}}]`,
		`endpointUrl:  > "https://example.com/in?***"`, `endpointValidation:  > "skip"`,
		`oauth2.clientId:  > "c"`, `oauth2.clientSecret:  > "***"`,
		`oauth2.scope:  > "<a>"`, `oauth2.tokenUrl:  > "https://login.example.com/"`,
		"retryPolicy.eventTimeToLiveInMinutes:  > 2000", "retryPolicy.maxDeliveryAttempts:  > 35",
		`retryPolicy.policy:  > "steps"`,
	}
	require.Equal(t, created, shown, "its event subscriptions are checked with the declared topics and policies")
	s.get("/v1/topics/orders").json(404)
	s.put("/v1/policies/steps", `{"stepsInSeconds":[3]}`).json(201)
	late := s.manage(http.MethodPost, "/v1/apply", file, "If-Match", plan.ETag).rejected(412, "PreconditionFailed")
	require.Contains(t, late.Message, "another client has changed the configuration")
	s.get("/v1/topics/orders").json(404)
	s.delete("/v1/policies/steps").is(204)
	_, made := s.apply("dryRun=false", file, "If-Match", plan.ETag)
	require.Equal(t, []string{
		"create policy steps applied", "create topic orders applied", "create subscription orders/one applied",
	}, slices.DeleteFunc(made, func(line string) bool { return strings.Contains(line, ": ") }))
	unchanged := []string{"none policy steps", "none topic orders", "none subscription orders/one"}
	_, again := s.apply("", file, "If-Match", "*")
	require.Equal(t, unchanged, again)

	other := strings.NewReplacer("code=secret", "code=other", "s3cret-1", "s3cret-2", `"s3cret"`, `"other"`,
		`"eventRetentionInDays":2`, `"eventRetentionInDays":3`, "2000", "3000").Replace(file)
	_, changed := s.apply("dryRun=true", other)
	require.Equal(t, []string{
		"none policy steps", "update topic orders", "eventRetentionInDays: 2 > 3", "update subscription orders/one",
		`deliveryAttributeMappings: [{"name":"X-S","type":"Static","properties":{"value":"***","isSecret":true}}] > ` +
			`[{"name":"X-S","type":"Static","properties":{"value":"*** (changed)","isSecret":true}}]`,
		`endpointUrl: "https://example.com/in?***" > "https://example.com/in?*** (changed)"`,
		`oauth2.clientSecret: "***" > "*** (changed)"`, "retryPolicy.eventTimeToLiveInMinutes: 2000 > 3000",
	}, changed)
	kept := strings.NewReplacer(`,"clientSecret":"s3cret-1"`, "", `"value":"s3cret",`, "").Replace(file)
	_, same := s.apply("", kept)
	require.Equal(t, unchanged, same, "absent secrets are kept")
	require.Empty(t, s.rows("SELECT 1 FROM postrider.audit WHERE action LIKE '%revealed%'"), "no secret was shown")
	_, same = s.apply("dryRun=true", `{"topics":[{"name":"orders","createOnly":true}]}`)
	require.Equal(t, []string{"none topic orders"}, same)

	s.subscription("orders", "two", `{"endpointUrl":"https://example.com/","endpointValidation":"skip"}`)
	one := `{"subscriptions":[{"topic":"orders","name":"two","endpointUrl":"https://example.com/",` +
		`"endpointValidation":"skip"}]}`
	_, gone := s.apply("dryRun=true&prune=subscriptions", one)
	require.Equal(t, []string{"none subscription orders/two", "delete subscription orders/one"}, gone)
	_, gone = s.apply("prune=all", `{}`)
	require.Equal(t, []string{
		"delete subscription orders/one applied", "delete subscription orders/two applied", "delete topic orders applied",
		"delete policy steps applied",
	}, gone)
}

// The first rejected change ends the request. The response shows what was changed before, and the rest can be repeated.
func TestApplyStopsAtARejectedChange(t *testing.T) {
	t.Parallel()
	s := setupEngine(t)
	file := `{"subscriptions":[{"topic":"orders","name":"fine","endpointUrl":"` + endpoint(t, respondWithCode) + `"},
		{"topic":"orders","name":"fails","endpointUrl":"` + endpoint(t, responses(http.StatusForbidden)) + `"},
		{"topic":"orders","name":"later","endpointUrl":"` + endpoint(t, respondWithCode) + `"}]}`
	plan, _ := s.apply("dryRun=true", file)
	stopped, made := s.apply("", file, "If-Match", plan.ETag)
	require.Contains(t, made, "create subscription orders/fine applied")
	require.Contains(t, made, "create subscription orders/fails")
	require.Contains(t, made, "create subscription orders/later")
	require.Equal(t, "EndpointValidationFailed", stopped.Error.Code)
	require.NotEmpty(t, stopped.Error.Details)
	rest, _ := s.apply("dryRun=true", file)
	require.Equal(t, stopped.ETag, rest.ETag)
	require.NotEqual(t, plan.ETag, rest.ETag)
}

// A declared access key is that of a new topic. A key of another emulator, which is published, is for postrider dev.
func TestApplyOfAccessKeys(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const published, key = "TheLocal+DevelopmentKey=", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	file := func(key string) string { return `{"topics":[{"name":"orders","key1":"` + key + `"}]}` }
	for _, wrong := range []string{published, "no base64", ""} {
		rejected := s.manage(http.MethodPost, "/v1/apply", file(wrong)).rejected(400, "InvalidRequest")
		require.Contains(t, rejected.Details[0].Message, "topic orders: key1 must be the base64 of 32 bytes or more")
	}
	_, made := s.apply("", file(key))
	require.Equal(t, "create topic orders applied", made[0])
	require.NotContains(t, strings.Join(made, "\n"), key)
	s.publish("orders", key, gridEvents("a")).is(200)
	_, made = s.apply("", file("IAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="))
	require.Equal(t, []string{"none topic orders"}, made, "its keys do not change")
	s.publish("orders", key, gridEvents("b")).is(200)

	dev := s.with(withDev(server.Dev{}))
	dev.apply("", strings.Replace(file(published), "orders", "shop", 1))
	dev.publish("shop", published, gridEvents("c")).is(200)
}
