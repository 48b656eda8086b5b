package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// docs/cli.md has every verb with a command line that the program understands.
func TestEveryVerbIsOnThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	for _, verb := range leaves(t) {
		require.Regexp(t, `(^|\W)postrider `+verb+`\b`, string(page))
	}
	for flag := range parsedFlags(string(page)) {
		require.True(t, knownFlag(t, flag), "the page says --%s", flag)
	}
}

func parsedFlags(page string) map[string]bool {
	found := map[string]bool{}
	for _, match := range regexp.MustCompile("`--([a-z0-9-]+)").FindAllStringSubmatch(page, -1) {
		found[match[1]] = true
	}
	return found
}

func knownFlag(t *testing.T, name string) bool {
	t.Helper()
	for _, leaf := range newParser(t).Model.Leaves(true) {
		for _, group := range leaf.AllFlags(false) { // the page also names some that are refused
			for _, flag := range group {
				if flag.Name == name || slices.Contains(flag.Aliases, name) {
					return true
				}
			}
		}
	}
	return name == "include-full-endpoint-url" // the Azure CLI's
}

func TestAdvancedFilterFlag(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, want, wrong string }{
		{text: "data.total NumberGreaterThan 1.50", want: `{"key":"data.total","operatorType":"NumberGreaterThan","value":1.50}`},
		{text: " data.total  numberin 1 2e3 ", want: `{"key":"data.total","operatorType":"NumberIn","values":[1,2e3]}`},
		{text: "data.n NumberInRange 1,10 -5,2.5", want: `{"key":"data.n","operatorType":"NumberInRange","values":[[1,10],[-5,2.5]]}`},
		{text: "data.on BoolEquals TRUE", want: `{"key":"data.on","operatorType":"BoolEquals","value":true}`},
		{text: `subject StringContains "a b" 'c "d"' e"f`, want: `{"key":"subject","operatorType":"StringContains","values":["a b","c \"d\"","e\"f"]}`},
		{text: `subject StringIn ""`, want: `{"key":"subject","operatorType":"StringIn","values":[""]}`},
		{text: "data.x IsNotNull", want: `{"key":"data.x","operatorType":"IsNotNull"}`},
		{text: "data.x", wrong: "must be a key, an operator"},
		{text: "data.x IsNotNull 1", wrong: "takes no value"},
		{text: "data.x NumberLessThan", wrong: "takes one value, not 0"},
		{text: "data.x NumberLessThan a", wrong: "takes numbers"},
		{text: `data.x NumberIn "1" 0x1`, wrong: "takes numbers"},
		{text: "data.x NumberInRange 1-2", wrong: "takes ranges"},
		{text: "data.x BoolEquals yes", wrong: "true or false"},
		{text: "data.x StringIn", wrong: "at least one value"},
		{text: "data.x Like a", wrong: "there is no operator Like"},
		{text: `data.x StringIn "a`, wrong: "is not closed"},
	} {
		clause, err := advancedFilter(row.text)
		if row.wrong != "" {
			require.ErrorContains(t, err, row.wrong, row.text)
			continue
		}
		require.NoError(t, err, row.text)
		encoded, err := encodePlainly(clause)
		require.NoError(t, err)
		require.Equal(t, row.want, string(encoded))
	}
}

// What was not answered, or only with "later", is sent again as the same request.
func TestPublishIsSentAgainUnderTheSameKey(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var keys, bodies []string
	answers := []int{http.StatusServiceUnavailable, 0, http.StatusTooManyRequests, http.StatusOK, http.StatusOK}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		status := answers[len(keys)]
		keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(body))
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	client, err := serverFlags{Server: server.URL}.client()
	require.NoError(t, err)
	p := &publisher{client: client, target: &publishTarget{name: "orders", path: "/topics/orders/api/events", key: "k"}, batch: 2, retryFor: time.Minute, run: newRunID()}
	left := []string{`{"specversion":"1.0","n":1.0}`, `{"n":2}`, `{"n":3}`}
	require.NoError(t, p.publish(t.Context(), givenEvents(func() ([]byte, error) {
		if len(left) == 0 {
			return nil, io.EOF
		}
		event := left[0]
		left = left[1:]
		return []byte(event), nil
	})))
	require.Equal(t, []string{keys[0], keys[0], keys[0], keys[0]}, keys[:4])
	require.NotEqual(t, keys[0], keys[4])
	require.Equal(t, []string{`[{"specversion":"1.0","n":1.0},{"n":2}]`, bodies[0], bodies[0], bodies[0], `[{"n":3}]`}, bodies)
	require.Equal(t, []int{3, 3, 0, 2}, []int{p.tally.sent, p.tally.accepted, p.tally.failed, p.tally.requests})
	require.GreaterOrEqual(t, p.tally.retries, 2) // net/http repeats a request with this header by itself where a connection was lost
	require.Equal(t, "CloudEventSchemaV1_0", p.target.schema, "events tell their schema")
}

// Who gets no answer in the end must not be told that nothing was stored.
func TestPublishSaysWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for status, says := range map[int]string{
		http.StatusBadRequest: "event 7 was not accepted: ", http.StatusTooManyRequests: "event 7 was not accepted: ", http.StatusServiceUnavailable: "it is not known whether event 7 was accepted: ",
	} {
		require.ErrorContains(t, &refusedEventsError{7, 7, &apiError{status: status, message: "no"}}, says)
	}
	require.ErrorContains(t, &refusedEventsError{7, 9, io.ErrUnexpectedEOF}, "it is not known whether events 7 to 9 were accepted: ")
	require.ErrorContains(t, &refusedEventsError{7, 9, &apiError{status: http.StatusBadRequest, message: "events[2].type: is required"}}, "event 9.type: is required")
}

type givenEvents func() ([]byte, error)

func (f givenEvents) next() ([]byte, error) { return f() }

func TestPublishGathersUpToAMegabyte(t *testing.T) {
	t.Parallel()
	large := `{"a":"` + strings.Repeat("x", 400_000) + `"}`
	p := &publisher{}
	n := 0
	source := givenEvents(func() ([]byte, error) {
		if n++; n > 5 {
			return nil, io.EOF
		}
		return []byte(large), nil
	})
	var sizes []int
	for {
		body, events, end := p.gather(source, 100)
		require.True(t, json.Valid(body))
		require.LessOrEqual(t, len(body), maxBatchBytes)
		sizes = append(sizes, events)
		if errors.Is(end, io.EOF) {
			break
		}
	}
	require.Equal(t, []int{2, 2, 1}, sizes)
}

func TestReadApplyRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, says string }{
		{"a list of anything", "- a", "it must have topics, subscriptions or policies"},
		{"an unknown member", "topic: []", "topic is not known here"},
		{"a name twice", "topics: [{name: abc}, {name: abc}]", "topic abc is there twice"},
		{"two topics' names in other case", "topics: [{name: abc}, {name: aBc}]", `topic aBc: the name conflicts with "abc"`},
		{
			"two event subscriptions' names in other case", "subscriptions: [{topic: t-1, name: abc}, {topic: t-1, name: ABC}]",
			`subscription t-1/ABC: the name conflicts with "abc"`,
		},
		{"a member twice", "topics:\n- name: abc\n  name: abc", "line 3: name appears twice"},
		{"no name", "topics: [{kind: basic}]", "topics[0]: a topic without a name"},
		{"no topic", "subscriptions: [{name: abc}]", "subscriptions[0]: a subscription without a name or a topic"},
		{"no object", "topics: [abc]", "topics[0] must be an object"},
		{"a merge key", "x: &x {a: 1}\ntopics: [{<<: *x}]", "merge keys"},
		{"an alias of itself", "topics: &x [*x]", "too much"},
		{"no YAML", "topics: [", "did not find expected"},
		{"an infinite number", "topics: [{name: abc, eventRetentionInDays: .inf}]", "is no number of JSON"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := readApply([]byte(row.text), "")
			require.ErrorContains(t, err, row.says)
		})
	}
	file, err := readApply([]byte("subscriptions: [{topic: t-1, name: s-1, expirationTimeUtc: 2030-01-01, maxEventsPerBatch: 1_0}]\n---\npolicies: [{name: p-1}]\ntopics: []"), "")
	require.NoError(t, err)
	require.Equal(t, kindPolicy, file.wanted[0].kind, "what others need comes first")
	require.Equal(t, `{"expirationTimeUtc":"2030-01-01","maxEventsPerBatch":10}`, mustJSON(t, file.wanted[1].settings))
}

// The answer of Azure's own API, and a domain's topic.
func TestReadApplyOfAzuresAPI(t *testing.T) {
	t.Parallel()
	const of = `"type":"Microsoft.EventGrid/eventSubscriptions","properties":{"topic":"/subscriptions/s/providers/Microsoft.EventGrid/domains/d/topics/orders",`
	file, err := readApply([]byte(`{"value":[
		{"name":"one",`+of+`"eventDeliverySchema":"CloudEventSchemaV1_0","destination":{"endpointType":"WebHook","properties":{"endpointBaseUrl":"https://a.example/in",
			"deliveryAttributeMappings":[{"name":"X","type":"Static","properties":{"value":"v","isSecret":false}}]}},
			"deadLetterDestination":{"endpointType":"StorageBlob","properties":{"resourceId":"/r","blobContainerName":"c"}},
			"deadLetterWithResourceIdentity":null,"retryPolicy":{"maxDeliveryAttempts":3}}},
		{"name":"two",`+of+`"destination":{"endpointType":"AzureFunction","properties":{"resourceId":"/f"}}}},
		{"name":"three",`+of+`"deliveryConfiguration":{"deliveryMode":"Queue"}}}],"nextLink":null}`), "")
	require.NoError(t, err)
	require.True(t, file.azure)
	require.Len(t, file.wanted, 2)
	require.Equal(t, wanted{kind: kindTopic, name: "orders", settings: object{"inputSchema": "CloudEventSchemaV1_0"}, ifMissing: true}, file.wanted[0])
	require.Equal(t, `{"deadLetterDestination":{"endpointType":"StorageBlob","properties":{"blobContainerName":"c","resourceId":"/r"}},`+
		`"deliveryAttributeMappings":[{"name":"X","properties":{"isSecret":false,"value":"v"},"type":"Static"}],"endpointUrl":"https://a.example/in",`+
		`"eventDeliverySchema":"CloudEventSchemaV1_0","retryPolicy":{"maxDeliveryAttempts":3}}`, mustJSON(t, file.wanted[1].settings))
	require.Len(t, file.notOffered, 3)
	for i, note := range []string{"one: the list has no endpointUrl", "two: endpointType AzureFunction is not offered", "three: the deliveryConfiguration of a namespace"} {
		require.Contains(t, file.notOffered[i], note)
	}
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	node := newParser(t).Model.Node
	require.Contains(t, completions(node, nil), "subscription")
	require.NotContains(t, completions(node, nil), "complete-words")
	require.Equal(t, []string{"create"}, completions(node, []string{"topic", "cr"}))
	require.Equal(t, []string{"--advanced-filter"}, completions(node, []string{"subscription", "create", "orders", "billing", "--endpoint", "x", "--adv"}))
	require.Equal(t, []string{"json", "table", "yaml"}, completions(node, []string{"topic", "list", "-o", ""}))
	require.Equal(t, []string{"bash", "fish", "zsh"}, completions(node, []string{"completion", ""}))
	require.Empty(t, completions(node, []string{"publish", "--key", ""}))
	for _, shell := range []string{"bash", "zsh", "fish"} {
		require.Contains(t, postrider(t, nil, "completion", shell).stdout, "complete-words")
	}
	piped := startProcess(t, nil, "/bin/bash", "--norc", "-c", `source <("$0" completion bash); COMP_WORDS=("$0" topic cr); COMP_CWORD=2; _postrider; echo "${COMPREPLY[@]}"`, program)
	require.Zero(t, piped.wait(), piped.stderr.String())
	require.Equal(t, "create\n", piped.stdout.String())
}
