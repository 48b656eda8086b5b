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

// wholeFiles are operations whose responses are too long for an example, and differ in every version.
var wholeFiles = []string{"metrics", "specification", "reference"}

// Each operation has its texts, examples and errors.
func TestEveryOperationIsDescribed(t *testing.T) {
	t.Parallel()
	spec := readSpecification(t)
	var tags []string
	for _, tag := range spec.Tags {
		require.NotEmpty(t, tag.Description, tag.Name)
		tags = append(tags, tag.Name)
	}
	described := func(what string, list []parameter) {
		for _, p := range list {
			require.True(t, p.Ref != "" || p.Description != "", "%s: parameter %s has no description", what, p.Name)
		}
	}
	for path, members := range spec.Paths {
		if node, ok := members["parameters"]; ok {
			var list []parameter
			require.NoError(t, node.Decode(&list))
			described(path, list)
		}
	}
	for _, op := range operations(t) {
		require.NotEmpty(t, op.Summary, "%s: summary", op.OperationID)
		require.NotEmpty(t, op.Description, "%s: description", op.OperationID)
		require.Len(t, op.Tags, 1, op.OperationID)
		require.Contains(t, tags, op.Tags[0], op.OperationID)
		described(op.OperationID, op.Parameters)
		if op.RequestBody != nil {
			for kind, content := range op.RequestBody.Content {
				require.NotEmpty(t, content.Examples, "%s: the body as %s has no example", op.OperationID, kind)
			}
		}
		for status, response := range op.Responses {
			require.True(t, response.Ref != "" || response.Description != "", "%s: %s has no description",
				op.OperationID, status)
			for kind, content := range response.Content {
				require.True(t, content.Example != nil || slices.Contains(wholeFiles, op.OperationID),
					"%s: %s as %s has no example", op.OperationID, status, kind)
			}
		}
		for _, status := range possibleErrors(&op) {
			require.Contains(t, op.Responses, status, "%s: a possible response", op.OperationID)
		}
	}
}

// possibleErrors are the errors of operations of this kind.
func possibleErrors(op *operation) (list []string) {
	if op.Access != "none" {
		list = append(list, "401", "403", "429", "500", "503")
	}
	if op.RequestBody != nil {
		list = append(list, "400", "413", "415")
	}
	return list
}

func TestEveryPropertyIsDescribed(t *testing.T) {
	t.Parallel()
	spec := readSpecification(t)
	var walk func(path string, s schema)
	walk = func(path string, s schema) {
		require.NotEmpty(t, s.Ref+s.Description, "%s has no description", path)
		for name, p := range s.Properties {
			walk(path+"."+name, p)
		}
		if s.Items != nil {
			for name, p := range s.Items.Properties {
				walk(path+"[]."+name, p)
			}
		}
	}
	for name, s := range spec.Components.Schemas {
		walk(name, s)
	}
	for name, p := range spec.Components.Parameters {
		require.NotEmpty(t, p.Description, name)
	}
	for name, h := range spec.Components.Headers {
		require.NotEmpty(t, h.Description, name)
	}
	for name, c := range spec.Components.SecuritySchemes {
		require.NotEmpty(t, c.Description, name)
	}
	for name, r := range spec.Components.Responses {
		require.NotEmpty(t, r.Description, name)
		require.NotNil(t, r.Content["application/json"].Example, name)
	}
}

// Each example of an error is the response to a request.
func TestExamplesOfErrors(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *server.Options) {
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a failing scrape") })
	})
	s.topic("orders", "")
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
