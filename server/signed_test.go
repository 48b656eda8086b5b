package server_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sign appends the signature, encoded by encode.
func sign(t *testing.T, key, unsigned string, encode func(string) string) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(key)
	require.NoError(t, err)
	h := hmac.New(sha256.New, raw)
	h.Write([]byte(unsigned))
	return unsigned + "&s=" + encode(base64.StdEncoding.EncodeToString(h.Sum(nil)))
}

// The encodings of three languages: .NET's has hexadecimal digits in lower case, Python's a plus for a space,
// JavaScript's neither.
var (
	python     = url.QueryEscape
	dotNet     = func(s string) string { return lowerEscapes(url.QueryEscape(s)) }
	javaScript = func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
)

func lowerEscapes(s string) string {
	return regexp.MustCompile(`%[0-9A-F]{2}`).ReplaceAllStringFunc(s, strings.ToLower)
}

func token(t *testing.T, key, resource, expiry string, encode func(string) string) string {
	t.Helper()
	return sign(t, key, "r="+encode(resource)+"&e="+encode(expiry), encode)
}

const (
	usEnglish = "1/2/2006 3:04:05 PM"
	isoPlain  = "2006-01-02T15:04:05.999999"
)

// server/auth has the forms of clients, times and resources.
func TestPublishWithSharedAccessSignatures(t *testing.T) {
	t.Parallel()
	s := setup(t)
	keys := s.put("/v1/topics/orders", "").json(201)
	key1, key2 := keys["key1"].(string), keys["key2"].(string)
	other := s.topic("parcels", "")
	soon, past := time.Now().UTC().Add(time.Hour), time.Now().UTC().Add(-time.Minute)
	us, iso := soon.Format(usEnglish), soon.Format(isoPlain)
	address := s.url + "/topics/orders/api/events"
	good := token(t, key1, address, us, dotNet)
	const header, scheme = "aeg-sas-token", "SharedAccessSignature "
	for name, row := range map[string]struct {
		headers []string
		says    string // "" = 200
	}{
		"as .NET makes it":           {[]string{header, good}, ""},
		"in Authorization":           {[]string{"Authorization", scheme + good}, ""},
		"in Authorization, in small": {[]string{"Authorization", strings.ToLower(scheme) + good}, ""},
		"with the second key":        {[]string{header, token(t, key2, address, us, dotNet)}, ""},
		"for the topic":              {[]string{header, token(t, key1, s.url+"/topics/orders", iso, python)}, ""},
		"by another name of the host": {
			[]string{header, token(t, key1, "https://events.example.com/topics/orders/api/events", iso, python)}, "",
		},
		"expired": {
			[]string{header, token(t, key1, address, past.Format(usEnglish), dotNet)},
			"aeg-sas-token: the shared access signature expired at " + past.Format(time.RFC3339),
		},
		"expired, in Authorization": {
			[]string{"Authorization", scheme + token(t, key1, address, past.Format(isoPlain), python)},
			"Authorization: the shared access signature expired",
		},
		"signed with another topic's key": {
			[]string{header, token(t, other, address, us, dotNet)}, "does not match an access key of this topic",
		},
		"for another topic": {
			[]string{header, token(t, key1, s.url+"/topics/parcels/api/events", us, dotNet)},
			"r must be /topics/orders/api/events",
		},
		"Event Grid's own address": {
			[]string{header, token(t, key1, "https://orders.westeurope-1.eventgrid.azure.net/api/events", us, dotNet)},
			"r must be /topics/",
		},
		"a key":   {[]string{header, key1}, "the form is"},
		"nothing": {[]string{"Authorization", scheme}, "or a shared access signature"},
		"a bad token beside a good one": {
			[]string{header, "r=", "Authorization", scheme + good}, "aeg-sas-token: the form is",
		},
		"a bad key beside a good token": {
			[]string{"aeg-sas-key", "wrong", header, good}, "the access key is not one of this topic's",
		},
		"as a key": {[]string{"aeg-sas-key", good}, "the access key is not one of this topic's"},
		"signed with the admin token's bytes": {
			[]string{header, token(t, base64.StdEncoding.EncodeToString([]byte(adminToken)), address, us, dotNet)},
			"does not match an access key of this topic",
		},
	} {
		response := s.send(http.MethodPost, "/topics/orders/api/events?api-version=2018-01-01", gridEvents("1"),
			row.headers...)
		if row.says == "" {
			require.Equal(t, 200, response.status, "%s: %s", name, response.body)
			continue
		}
		require.Equal(t, 401, response.status, "%s: %s", name, response.body)
		require.Contains(t, response.rejected(401, "Unauthorized").Message, row.says, name)
	}
	require.Equal(t, 6, s.count("SELECT count(*) FROM postrider.events"))
}

func TestPublishWithTheKeyInTheQuery(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb, 0xef, 0xff}, 11)[:32]) // has + and /
	require.Contains(t, key, "+")
	s.topicWithKeys("orders", key, key)
	for query, status := range map[string]int{
		"aeg-sas-key=" + key:                                       200, // as the page's sample has it
		"aeg-sas-key=" + url.QueryEscape(key):                      200,
		"api-version=2018-01-01&aeg-sas-key=" + key:                200,
		"aeg-sas-key=wrong":                                        401,
		"aeg-sas-key=":                                             401,
		"aeg-sas-token=" + token(t, key, s.url, "2099", python):    401,
		"aeg-sas-key=" + url.QueryEscape(adminToken):               401,
		"x-aeg-sas-key=" + key + "&aeg-sas-keys=" + key:            401,
		"aeg-sas-key=" + url.QueryEscape(key) + "&api-version=9.9": 400,
	} {
		response := s.send(http.MethodPost, "/topics/orders/api/events?"+query, gridEvents("1"))
		require.Equal(t, status, response.status, "%s: %s", query, response.body)
	}
	require.Equal(t, 401,
		s.send(http.MethodPost, "/topics/orders/api/events?aeg-sas-key="+key, "[]", "aeg-sas-key", "wrong").status,
		"the header comes first")

	// A key that is not base64 signs nothing. It is not the empty key, with which everyone could sign.
	s.topicWithKeys("parcels", "not base64", "")
	signed := token(t, "", s.url, time.Now().UTC().Add(time.Hour).Format(usEnglish), dotNet)
	s.send(http.MethodPost, "/topics/parcels/api/events", "[]", "aeg-sas-token", signed).rejected(401, "Unauthorized")
	s.publish("parcels", "not base64", "[]").is(200)
}

func TestTopicKeys(t *testing.T) {
	t.Parallel()
	log := &lines{}
	s := setup(t, log.all)
	made := s.put("/v1/topics/orders", "").json(201)
	listed := s.post("/v1/topics/orders/listKeys", "").json(200)
	require.Equal(t, map[string]any{"key1": made["key1"], "key2": made["key2"]}, listed)
	require.Contains(t, log.String(), `"msg":"access keys of a topic were shown","topic":"orders","client":"127.0.0.1"`)

	first := s.post("/v1/topics/orders/regenerateKey", `{"keyName":"key1"}`).json(200)
	require.NotEqual(t, made["key1"], first["key1"])
	require.Equal(t, made["key2"], first["key2"])
	second := s.post("/v1/topics/orders/regenerateKey", `{"keyName":"key2"}`).json(200)
	require.Equal(t, first["key1"], second["key1"])
	require.NotEqual(t, made["key2"], second["key2"])
	require.Equal(t, second, s.post("/v1/topics/orders/listKeys", "").json(200))
	require.Contains(t, log.String(), `"msg":"an access key of a topic was replaced","topic":"orders","key":"key2"`)

	for _, response := range []response{s.get("/v1/topics/orders"), s.get("/v1/topics"), s.put("/v1/topics/orders", "")} {
		require.Equal(t, 200, response.status)
		require.NotContains(t, response.body, "key1")
	}
	for _, key := range []any{made["key1"], made["key2"], second["key1"], second["key2"]} {
		require.NotContains(t, log.String(), key.(string))
		require.Zero(t,
			s.count("SELECT count(*) FROM postrider_internal.topics t WHERE strpos(t::text, $1) > 0 "+
				"OR strpos(encode(key1_sealed||key2_sealed, 'escape'), $1) > 0", key), "never as it is")
	}
}

func TestTopicKeyRejections(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	for _, body := range []string{
		"", "{}", `{"keyName":null}`, `{"keyName":""}`, `{"keyName":"key3"}`, `{"keyName":"Key1"}`,
	} {
		rejection := s.post("/v1/topics/orders/regenerateKey", body).rejected(400, "InvalidRequest")
		require.Equal(t, "keyName must be key1 or key2", rejection.Message, body)
		require.Equal(t, []string{"keyName"}, targets(rejection), body)
	}
	s.post("/v1/topics/orders/regenerateKey", `{"keyname":"key1"}`).rejected(400, "InvalidRequest")
	for _, name := range []string{"nothing", "%00", "%ff"} {
		s.post("/v1/topics/"+name+"/regenerateKey", `{"keyName":"key1"}`).rejected(404, "NotFound")
		s.post("/v1/topics/"+name+"/listKeys", "").rejected(404, "NotFound")
	}
	require.Equal(t, 200, s.publish("orders", key, "[]").status, "nothing was replaced")
}

func TestRegeneratedKeysOnEveryNode(t *testing.T) {
	t.Parallel()
	s := setup(t)
	other := s.node(s.tn.URL, 0)
	const path = "/topics/orders/api/events"
	soon := time.Now().UTC().Add(time.Hour).Format(usEnglish)
	// The other node publishes, so that its transaction also checks the keys.
	with := func(key string) []int {
		signed := token(t, key, s.url+path, soon, dotNet)
		return []int{
			other.publish("orders", key, gridEvents("1")).status,
			other.send(http.MethodPost, path, gridEvents("1"), "aeg-sas-token", signed).status,
		}
	}
	old := s.topic("orders", "")
	require.Equal(t, []int{200, 200}, with(old))
	keys := s.post("/v1/topics/orders/regenerateKey", `{"keyName":"key1"}`).json(200)
	require.Equal(t, []int{401, 401}, with(old), "the old one, at the next publish")
	require.Equal(t, []int{200, 200}, with(keys["key1"].(string)), "the new one, at once")
	require.Equal(t, []int{200, 200}, with(keys["key2"].(string)), "the other one goes on")
}
