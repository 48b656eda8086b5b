package server_test

import (
	"fmt"
	"html"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page has all of the document, and the browser runs only its own script.
func TestReference(t *testing.T) {
	t.Parallel()
	b := setup(t)
	response := b.send(http.MethodGet, "/openapi", "")
	require.Equal(t, http.StatusOK, response.status)
	require.Equal(t, "text/html; charset=UTF-8", response.header.Get("Content-Type"))
	text := html.UnescapeString(response.body)
	for _, op := range operations(t) {
		for _, part := range []string{
			fmt.Sprintf(`<article id="%s">`, op.OperationID), fmt.Sprintf(`<a href="#%s">%s</a>`, op.OperationID, op.Summary),
			"<code>" + op.template + "</code>", fmt.Sprintf(`id="curl-%s"`, op.OperationID),
		} {
			require.Contains(t, text, part, op.OperationID)
		}
	}
	spec := readSpecification(t)
	for name, s := range spec.Components.Schemas {
		_, section, found := strings.Cut(text, fmt.Sprintf(`<article id="schema-%s">`, name))
		require.True(t, found, name)
		section, _, _ = strings.Cut(section, "</article>")
		for property, described := range s.Properties {
			require.Contains(t, section, "<dt><code>"+property+"</code>", name)
			require.Contains(t, withoutTags(section), withoutTicks(described.Description), "%s.%s", name, property)
		}
	}
	for name := range spec.Components.Responses {
		require.Contains(t, text, fmt.Sprintf(`<article id="error-%s">`, name))
	}
	require.NotContains(t, response.body, "<no value>")
	require.NotContains(t, response.body, "ZgotmplZ")
	require.Contains(t, response.header.Get("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-")
	require.NotContains(t, response.header.Get("Content-Security-Policy"), "unsafe")
}

func withoutTags(text string) string {
	return strings.Join(strings.Fields(regexp.MustCompile(`</?[a-z][^>]*>`).ReplaceAllString(text, "")), " ")
}

func withoutTicks(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "`", "")), " ")
}

// The page is sent once to a browser, and compressed if Accept-Encoding allows it.
func TestReferenceIsSentOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain := b.send(http.MethodGet, "/openapi", "", "Accept-Encoding", "identity")
	require.Empty(t, plain.header.Get("Content-Encoding"))
	require.Equal(t, "no-cache", plain.header.Get("Cache-Control"))
	zipped := b.send(http.MethodGet, "/openapi", "", "Accept-Encoding", "br, gzip")
	require.Equal(t, "gzip", zipped.header.Get("Content-Encoding"))
	require.Equal(t, "Accept-Encoding", zipped.header.Get("Vary"))
	require.Less(t, len(zipped.body), len(plain.body)/6)
	same := b.send(http.MethodGet, "/openapi", "", "If-None-Match", plain.header.Get("ETag"))
	require.Equal(t, http.StatusNotModified, same.status)
	require.Empty(t, same.body)
	require.Equal(t, http.StatusOK, b.send(http.MethodGet, "/openapi", "", "If-None-Match", `"another"`).status)
}

// The commands of the page create a topic, subscribe to it and publish to it.
func TestCommandsOfTheReference(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		require.Empty(t, os.Getenv("POSTRIDER_CI"), "curl is missing")
		t.Skip("no curl on this machine")
	}
	b := setup(t)
	page := b.send(http.MethodGet, "/openapi", "").body
	key := b.topic("orders", "")
	lines := regexp.MustCompile(`(?s)id="curl-(\w+)"><code>(.*?)</code>`).FindAllStringSubmatch(page, -1)
	require.Len(t, lines, len(operations(t)))
	of := map[string]string{}
	for _, line := range lines {
		of[line[1]] = html.UnescapeString(line[2])
	}
	for _, id := range []string{
		"putTopic", "putSubscription", "publishEvents", "listTopics", "patchSubscription", "testSubscriptionFilter",
		"createAPIKey", "putPolicy", "deleteSubscription", "health",
	} {
		command := exec.CommandContext(t.Context(), "sh", "-c", of[id]+` -s -o /dev/null -w '%{http_code}'`)
		command.Env = append(os.Environ(), "API="+b.url, "POSTRIDER_API_KEY="+adminToken, "TOPIC_KEY="+key)
		status, err := command.Output()
		require.NoError(t, err, id)
		require.Regexp(t, `^20[014]$`, string(status), "%s: %s", id, of[id])
	}
}
