package cli_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
)

func TestTopicVerbs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	made := h.object("topic", "create", "topics-a", "--input-schema", "cloudeventschemav1_0",
		"--duplicate-detection-window-in-minutes", "5")
	require.NotEmpty(t, made["key1"])
	require.Nil(t,
		h.object("topic", "create", "topics-a", "--input-schema", "CloudEventSchemaV1_0",
			"--duplicate-detection-window-in-minutes", "5")["key1"], "keys are shown once")
	shown := h.object("topic", "show", "topics-a")
	require.JSONEq(t, h.manage(http.StatusOK, http.MethodGet, "/v1/topics/topics-a", ""), mustJSON(t, shown),
		"JSON is the API's")
	require.Regexp(t, `(?m)^topics-a +basic +CloudEventSchemaV1_0 +/topics/topics-a/api/events `,
		h.run(0, "topic", "list").stdout)

	keys := h.object("topic", "keys", "topics-a")
	require.Equal(t, made["key1"], keys["key1"])
	renewed := h.object("topic", "keys", "topics-a", "--renew", "key2")
	require.Equal(t, keys["key1"], renewed["key1"])
	require.NotEqual(t, keys["key2"], renewed["key2"])

	h.run(0, "topic", "create", "topics-b", "--input-schema", "customeventschema", "--input-mapping-fields",
		"eventType=kind,id=nr", "--input-mapping-default-values", "subject=all")
	require.JSONEq(t, `{"eventType":{"sourceField":"kind"},"id":{"sourceField":"nr"},"subject":{"defaultValue":"all"}}`,
		mustJSON(t, rest.ValueAt(h.object("topic", "show", "topics-b"), "inputSchemaMapping.properties")))
	stale := rest.TextAt(h.object("topic", "show", "topics-b"), "etag")
	h.run(0, "topic", "create", "topics-b", "--input-schema", "customeventschema", "--input-mapping-fields",
		"eventType=kind,id=nr", "--input-mapping-default-values", "subject=all",
		"--duplicate-detection-window-in-minutes", "5", "--if-match", stale)
	require.Contains(t, h.run(1, "topic", "delete", "topics-b", "--yes", "--if-match", stale).stderr,
		`"topics-b" is in none of the versions that If-Match names`)
	require.Equal(t, "Topic topics-b was deleted.\n",
		h.run(0, "topic", "delete", "topics-b", "--yes", "--if-match", "*").stdout)
	h.topic("topics-c")
	require.Equal(t, rest.Object{"name": "topics-c", "deleted": true}, h.object("topic", "delete", "topics-c", "--yes"))
	require.Equal(t, "postrider: topic \"topics-b\" does not exist\n", h.run(1, "topic", "show", "topics-b").stderr)
}
