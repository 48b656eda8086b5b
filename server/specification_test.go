package server_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/server"
)

// Each operation has its texts and examples. internal/gendocs reports members and parameters without a text.
func TestEveryOperationIsDescribed(t *testing.T) {
	t.Parallel()
	var tags []string
	for _, tag := range readSpecification(t).Tags {
		require.NotEmpty(t, tag.Description, tag.Name)
		tags = append(tags, tag.Name)
	}
	for _, op := range operations(t) {
		require.NotEmpty(t, op.Summary, "%s: summary", op.OperationID)
		require.NotEmpty(t, op.Description, "%s: description", op.OperationID)
		require.Len(t, op.Tags, 1, op.OperationID)
		require.Contains(t, tags, op.Tags[0], op.OperationID)
		if op.RequestBody != nil {
			for kind, content := range op.RequestBody.Content {
				require.NotEmpty(t, content.Examples, "%s: the body as %s has no example", op.OperationID, kind)
			}
		}
		for status, response := range op.Responses {
			for kind, content := range response.Content {
				require.True(t, content.Example != nil || slices.Contains(withoutExample, op.OperationID),
					"%s: %s as %s has no example", op.OperationID, status, kind)
			}
		}
	}
}

// Each example of an error is the response to a request.
func TestExamplesOfErrors(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *server.Options) {
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a failing scrape") })
	})
	key := s.topic("orders", "")
	s.subscription("orders", "billing", `{"endpointUrl":"https://example.com"}`)
	reader := "Bearer " + s.apiKey("ci", "read", "")
	const admin = "Bearer " + adminToken
	wrongCredentials := func() response {
		for i := range 100 {
			if a := s.send(http.MethodGet, "/v1/topics", "", "Authorization",
				fmt.Sprintf("Bearer guess-%d", i)); a.status != http.StatusUnauthorized {
				return a
			}
		}
		return response{}
	}
	given := map[string]response{
		"BadRequest": s.send(http.MethodPost, "/v1/topics/orders/regenerateKey", `{"keyName":"key3"}`,
			"Authorization", admin),
		"Unauthorized":       s.send(http.MethodGet, "/v1/topics", ""),
		"Forbidden":          s.send(http.MethodGet, "/v1/apiKeys", "", "Authorization", reader),
		"NotFound":           s.send(http.MethodGet, "/v1/topics/parcels", "", "Authorization", admin),
		"Conflict":           s.send(http.MethodDelete, "/v1/topics/orders", "", "Authorization", admin),
		"MethodNotAllowed":   s.send(http.MethodOptions, "/topics/orders/api/events", "", "aeg-sas-key", key),
		"PreconditionFailed": s.send(http.MethodPut, "/v1/topics/orders", "", "Authorization", admin, "If-Match", `"1"`),
		"TooLarge":           s.put("/v1/topics/orders", strings.Repeat(" ", 1<<20+1)),
		"UnsupportedMediaType": s.send(http.MethodPut, "/v1/topics/orders", "kind: basic", "Authorization", admin,
			"Content-Type", "application/yaml"),
		"InternalError":   s.send(http.MethodGet, "/metrics", "", "Authorization", admin),
		"TooManyRequests": wrongCredentials(),
		"Unavailable":     {}, // TestOutage
	}
	for name, r := range readSpecification(t).Components.Responses {
		a, tried := given[name]
		require.True(t, tried, "no request here gets %s", name)
		if name == "Unavailable" {
			continue
		}
		id := regexp.MustCompile(`[A-Z2-7]{26}`)
		require.Equal(t, id.ReplaceAllString(comparable(t, r.Content["application/json"].Example), "…"),
			id.ReplaceAllString(comparable(t, a.value()), "…"), name)
		if name == "Unauthorized" {
			require.NotEmpty(t, a.header.Get("WWW-Authenticate"))
		}
		if name == "TooManyRequests" {
			require.NotEmpty(t, a.header.Get("Retry-After"))
		}
	}
}

// requireListed requires that the specification has the status of a response. It checks every request of these tests,
// except responses of net/http itself.
func requireListed(t *testing.T, method, path string, status int) {
	t.Helper()
	if status == http.StatusRequestHeaderFieldsTooLarge {
		return
	}
	path, _, _ = strings.Cut(path, "?")
	for template, members := range readSpecification(t).Paths {
		node, there := members[strings.ToLower(method)]
		if !there || !fits(template, path) {
			continue
		}
		var op operation
		require.NoError(t, node.Decode(&op))
		require.Contains(t, op.Responses, strconv.Itoa(status), "openapi.yaml: %s may respond so", op.OperationID)
	}
}

// fits reports whether a path is one of a template's.
func fits(template, path string) bool {
	expected, given := strings.Split(template, "/"), strings.Split(path, "/")
	if len(expected) != len(given) {
		return false
	}
	for i, part := range expected {
		_, after, named := strings.Cut(part, "}")
		if !named && part != given[i] || named && !strings.HasSuffix(given[i], after) {
			return false
		}
	}
	return true
}
