package server_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/server"
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
	plain      = func(s string) string { return s }
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

func TestPublishWithSharedAccessSignatures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	keys := b.manage(http.MethodPut, "/v1/topics/orders", "").json(http.StatusCreated)
	key1, key2 := keys["key1"].(string), keys["key2"].(string)
	other := b.topic("parcels", "")
	soon, past := time.Now().UTC().Add(time.Hour), time.Now().UTC().Add(-time.Minute)
	us, iso := soon.Format(usEnglish), soon.Format(isoPlain)
	address := b.url + "/topics/orders/api/events"
	good := token(t, key1, address, us, dotNet)
	const header, scheme = "aeg-sas-token", "SharedAccessSignature "
	for name, row := range map[string]struct {
		headers []string
		says    string // "" = 200
	}{
		"as .NET makes it": {[]string{header, good}, ""},
		"as JavaScript makes it": {
			[]string{header, token(t, key1, address+"?apiVersion=2018-01-01", us, javaScript)}, "",
		},
		"as Python makes it":         {[]string{header, token(t, key1, address, iso, python)}, ""},
		"in Authorization":           {[]string{"Authorization", scheme + good}, ""},
		"in Authorization, in small": {[]string{"Authorization", strings.ToLower(scheme) + good}, ""},
		"with the second key":        {[]string{header, token(t, key2, address, us, dotNet)}, ""},
		"for the topic":              {[]string{header, token(t, key1, b.url+"/topics/orders", iso, python)}, ""},
		"for all that is here":       {[]string{header, token(t, key1, b.url, iso, python)}, ""},
		"by another name of the host": {
			[]string{header, token(t, key1, "https://events.example.com/topics/orders/api/events", iso, python)}, "",
		},
		"nothing of it encoded": {[]string{header, token(t, key1, address, soon.Format(usEnglish), plain)}, ""},
		"with a time zone": {
			[]string{header, token(t, key1, address, soon.In(time.FixedZone("", 7200)).Format(time.RFC3339), python)}, "",
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
		"encoded again since it was signed": {
			[]string{header, strings.ReplaceAll(good, "%2f", "%2F")}, "does not match an access key of this topic",
		},
		"made longer": {
			[]string{header, strings.Replace(good, "&e="+dotNet(us), "&e="+dotNet(soon.Add(time.Hour).Format(usEnglish)), 1)},
			"does not match an access key of this topic",
		},
		"for another topic": {
			[]string{header, token(t, key1, b.url+"/topics/parcels/api/events", us, dotNet)},
			"r must be /topics/orders/api/events",
		},
		"for a part of the name": {
			[]string{header, token(t, key1, b.url+"/topics/ord", us, dotNet)}, "r must be /topics/",
		},
		"Event Grid's own address": {
			[]string{header, token(t, key1, "https://orders.westeurope-1.eventgrid.azure.net/api/events", us, dotNet)},
			"r must be /topics/",
		},
		"a time that is none":      {[]string{header, token(t, key1, address, "tomorrow", dotNet)}, "e must be"},
		"an address that is none":  {[]string{header, token(t, key1, "orders", us, dotNet)}, "r must be"},
		"a signature that is none": {[]string{header, good[:len(good)-9]}, "s must be"},
		"a key":                    {[]string{header, key1}, "the form is"},
		"nothing":                  {[]string{"Authorization", scheme}, "or a shared access signature"},
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
		response := b.send(http.MethodPost, "/topics/orders/api/events?api-version=2018-01-01", "["+gridEvent("1")+"]",
			row.headers...)
		if row.says == "" {
			require.Equal(t, 200, response.status, "%s: %s", name, response.body)
			continue
		}
		require.Equal(t, 401, response.status, "%s: %s", name, response.body)
		require.Contains(t, response.rejected(401, "Unauthorized").Message, row.says, name)
	}
	require.Equal(t, 11, b.count("SELECT count(*) FROM postrider.events"))
}

func TestPublishWithTheKeyInTheQuery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb, 0xef, 0xff}, 11)[:32]) // has + and /
	require.Contains(t, key, "+")
	_, _, err := b.store.Topics.Put(t.Context(), "orders", catalog.TopicSpec{
		Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Keys: &catalog.AccessKeys{Key1: key, Key2: key},
	})
	require.NoError(t, err)
	for query, status := range map[string]int{
		"aeg-sas-key=" + key:                                       200, // as the page's sample has it
		"aeg-sas-key=" + url.QueryEscape(key):                      200,
		"api-version=2018-01-01&aeg-sas-key=" + key:                200,
		"aeg-sas-key=wrong":                                        401,
		"aeg-sas-key=":                                             401,
		"aeg-sas-token=" + token(t, key, b.url, "2099", python):    401,
		"aeg-sas-key=" + url.QueryEscape(adminToken):               401,
		"x-aeg-sas-key=" + key + "&aeg-sas-keys=" + key:            401,
		"aeg-sas-key=" + url.QueryEscape(key) + "&api-version=9.9": 400,
	} {
		response := b.send(http.MethodPost, "/topics/orders/api/events?"+query, "["+gridEvent("1")+"]")
		require.Equal(t, status, response.status, "%s: %s", query, response.body)
	}
	require.Equal(t, 401,
		b.send(http.MethodPost, "/topics/orders/api/events?aeg-sas-key="+key, "[]", "aeg-sas-key", "wrong").status,
		"the header comes first")
}

func TestTokensSignedWithTheDevKey(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *server.Options) { o.AllowDevKey = true })
	_, _, err := b.store.Topics.Put(t.Context(), "made-by-dev", catalog.TopicSpec{
		Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Keys: &catalog.AccessKeys{Key1: devKey, Key2: devKey},
	})
	require.NoError(t, err)
	signed := token(t, devKey, b.url+"/topics/made-by-dev", time.Now().UTC().Add(time.Hour).Format(usEnglish), dotNet)
	require.Equal(t, 200, b.send(http.MethodPost, "/topics/made-by-dev/api/events", "[]", "aeg-sas-token", signed).status)

	serving, err := server.New(server.Options{Parts: b.store.API(), AdminToken: adminToken, DevKey: devKey})
	require.NoError(t, err)
	rejected := serve(t, serving, http.MethodPost, "/topics/made-by-dev/api/events", "[]", "aeg-sas-token", signed)
	require.Contains(t, rejected.rejected(401, "Unauthorized").Message, "loopback")
}

// A key that is not base64 signs nothing. It is not the empty key, with which everyone could sign.
func TestKeysThatCannotSign(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.store.Topics.Put(t.Context(), "orders", catalog.TopicSpec{
		Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Keys: &catalog.AccessKeys{Key1: "not base64", Key2: ""},
	})
	require.NoError(t, err)
	signed := token(t, "", b.url, time.Now().UTC().Add(time.Hour).Format(usEnglish), dotNet)
	b.send(http.MethodPost, "/topics/orders/api/events", "[]", "aeg-sas-token", signed).rejected(401, "Unauthorized")
	require.Equal(t, 200, b.publish("orders", "not base64", "[]").status)
}

func TestTopicKeys(t *testing.T) {
	t.Parallel()
	log := &lines{}
	b := setup(t, func(o *server.Options) {
		o.Logger = slog.New(slog.NewJSONHandler(io.MultiWriter(log, io.Discard), nil))
	})
	made := b.manage(http.MethodPut, "/v1/topics/orders", "").json(http.StatusCreated)
	listed := b.manage(http.MethodPost, "/v1/topics/orders/listKeys", "").json(200)
	require.Equal(t, map[string]any{"key1": made["key1"], "key2": made["key2"]}, listed)
	require.Contains(t, log.String(), `"msg":"access keys of a topic were shown","topic":"orders","client":"127.0.0.1"`)

	first := b.manage(http.MethodPost, "/v1/topics/orders/regenerateKey", `{"keyName":"key1"}`).json(200)
	require.NotEqual(t, made["key1"], first["key1"])
	require.Equal(t, made["key2"], first["key2"])
	second := b.manage(http.MethodPost, "/v1/topics/orders/regenerateKey", `{"keyName":"key2"}`).json(200)
	require.Equal(t, first["key1"], second["key1"])
	require.NotEqual(t, made["key2"], second["key2"])
	require.Equal(t, second, b.manage(http.MethodPost, "/v1/topics/orders/listKeys", "").json(200))
	require.Contains(t, log.String(), `"msg":"an access key of a topic was replaced","topic":"orders","key":"key2"`)

	for _, response := range []response{b.manage(http.MethodGet, "/v1/topics/orders", ""), b.manage(http.MethodGet,
		"/v1/topics", ""), b.manage(http.MethodPut, "/v1/topics/orders", "")} {
		require.Equal(t, 200, response.status)
		require.NotContains(t, response.body, "key1")
	}
	for _, key := range []any{made["key1"], made["key2"], second["key1"], second["key2"]} {
		require.NotContains(t, log.String(), key.(string))
		require.Zero(t,
			b.count("SELECT count(*) FROM postrider_internal.topics t WHERE strpos(t::text, $1) > 0 "+
				"OR strpos(encode(key1_sealed||key2_sealed, 'escape'), $1) > 0", key), "never as it is")
	}
}

func TestTopicKeyRejections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	for _, body := range []string{
		"", "{}", `{"keyName":null}`, `{"keyName":""}`, `{"keyName":"key3"}`, `{"keyName":"Key1"}`,
	} {
		rejection := b.manage(http.MethodPost, "/v1/topics/orders/regenerateKey", body).rejected(400, "InvalidRequest")
		require.Equal(t, "keyName must be key1 or key2", rejection.Message, body)
		require.Equal(t, []string{"keyName"}, targets(rejection), body)
	}
	b.manage(http.MethodPost, "/v1/topics/orders/regenerateKey", `{"keyname":"key1"}`).rejected(400, "InvalidRequest")
	for _, name := range []string{"nothing", "%00", "%ff"} {
		b.manage(http.MethodPost, "/v1/topics/"+name+"/regenerateKey", `{"keyName":"key1"}`).rejected(404, "NotFound")
		b.manage(http.MethodPost, "/v1/topics/"+name+"/listKeys", "").rejected(404, "NotFound")
	}
	require.Equal(t, 200, b.publish("orders", key, "[]").status, "nothing was replaced")
}

func TestRegeneratedKeysOnEveryNode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, err := server.New(server.Options{
		Parts: openStore(t, b.dbURL).API(), AdminToken: adminToken, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	const path = "/topics/orders/api/events"
	soon := time.Now().UTC().Add(time.Hour).Format(usEnglish)
	// The other node publishes, so that its transaction also checks the keys.
	with := func(key string) []int {
		body := "[" + gridEvent("1") + "]"
		return []int{
			serve(t, other, http.MethodPost, path, body, "aeg-sas-key", key).status,
			serve(t, other, http.MethodPost, path, body, "aeg-sas-token", token(t, key, b.url+path, soon, dotNet)).status,
		}
	}
	keys := b.manage(http.MethodPut, "/v1/topics/orders", "").json(http.StatusCreated)
	for range 5 {
		old := keys["key1"].(string)
		require.Equal(t, []int{200, 200}, with(old))
		keys = b.manage(http.MethodPost, "/v1/topics/orders/regenerateKey", `{"keyName":"key1"}`).json(200)
		require.Equal(t, []int{401, 401}, with(old), "the old one, at the next publish")
		require.Equal(t, []int{200, 200}, with(keys["key1"].(string)), "the new one, at once")
		require.Equal(t, []int{200, 200}, with(keys["key2"].(string)), "the other one goes on")
	}
}

func TestGuessingIsLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	keys := b.manage(http.MethodPut, "/v1/topics/orders", "").json(http.StatusCreated)
	key1, key2 := keys["key1"].(string), keys["key2"].(string)
	require.Equal(t, 200, b.publish("orders", key1, "[]").status)
	var last response
	tried := 0
	for last = b.publish("orders", "wrong", "[]"); last.status == 401 && tried < 1000; tried++ {
		last = b.publish("orders", "wrong", "[]")
	}
	require.GreaterOrEqual(t, tried, 29)
	require.Contains(t, last.rejected(429, "TooManyRequests").Message, "your address")
	require.Regexp(t, `^[1-9]\d*$`, last.header.Get("Retry-After"))
	require.Equal(t, 200, b.publish("orders", key1, "[]").status, "it was right before")

	const path = "/topics/orders/api/events"
	elsewhere := serve(t, b.server, http.MethodPost, path, "[]", "aeg-sas-key", key2) // httptest's address is 192.0.2.1
	require.Equal(t, 200, elsewhere.status, "others are not slowed")
	require.Equal(t, 401, serve(t, b.server, http.MethodPost, path, "[]", "aeg-sas-key", "wrong").status)
	require.Equal(t, 401, b.send(http.MethodPost, path, "[]").status,
		"no credential is no guess; the response has what is missing")
}
