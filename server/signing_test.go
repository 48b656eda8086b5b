package server_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	signedPut  = `{"endpointUrl":"https://example.com/in","signing":{"enabled":true}}`
	ownSecret  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	showSecret = billing + "/getSigningSecrets"
	newSecret  = billing + "/rotateSigningSecret"
)

// secrets reads a response with secrets, the newest first.
func (a response) secrets() (list []map[string]any) {
	a.t.Helper()
	require.Equal(a.t, "no-store", a.header.Get("Cache-Control"))
	for _, secret := range a.json(200)["value"].([]any) {
		list = append(list, secret.(map[string]any))
	}
	return list
}

// hoursFromNow requires a time n hours from now.
func hoursFromNow(t *testing.T, n int, text any) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text.(string))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Duration(n)*time.Hour), at, time.Minute)
}

// endpointconf.TestRotation has which secrets sign when.
func TestSigningSecrets(t *testing.T) {
	t.Parallel()
	log := &lines{}
	s := setup(t, log.all)
	s.topic("orders", "")
	responses := []response{s.put(billing, signedPut)}
	made := responses[0].json(201)["signing"].(map[string]any)
	require.Equal(t,
		map[string]any{"enabled": true, "secrets": 1.0, "rotatedAt": made["rotatedAt"], "previousValidUntil": nil}, made)

	first := s.post(showSecret, "").secrets()
	require.Len(t, first, 1)
	require.Len(t, decoded(t, first[0]["secret"]), 32)
	require.Equal(t, made["rotatedAt"], first[0]["createdAt"])
	require.Nil(t, first[0]["validUntil"])
	require.Contains(t, log.String(), `"msg":"signing secrets of an event subscription were shown","topic":"orders",`+
		`"subscription":"billing","client":"127.0.0.1"`)

	second := s.post(newSecret, "").secrets()
	require.NotEqual(t, first[0]["secret"], second[0]["secret"])
	require.Equal(t, first[0]["secret"], second[1]["secret"])
	hoursFromNow(t, 24, second[1]["validUntil"])
	require.Contains(t, log.String(), `"msg":"the signing secret of an event subscription was replaced",`+
		`"topic":"orders","subscription":"billing","client":"127.0.0.1"`)
	third := s.post(newSecret, `{"secret":"`+ownSecret+`","previousValidForHours":168}`).secrets()
	require.Len(t, third, 3)
	require.Equal(t, ownSecret, third[0]["secret"])
	hoursFromNow(t, 168, third[1]["validUntil"])
	require.Equal(t, second[1], third[2], "its end is not deferred")
	require.Equal(t, third, s.post(showSecret, "").secrets())

	responses = append(responses, s.get(billing), s.get("/v1/topics/orders/subscriptions"), s.put(billing, signedPut))
	shown := responses[1].json(200)["signing"].(map[string]any)
	require.Equal(t,
		map[string]any{
			"enabled": true, "secrets": 3.0, "rotatedAt": third[0]["createdAt"], "previousValidUntil": third[1]["validUntil"],
		}, shown)
	require.Equal(t, shown, responses[3].json(200)["signing"], "putting it again makes no new one")
	for _, secret := range third {
		text, raw := secret["secret"].(string), decoded(t, secret["secret"])
		for _, a := range responses {
			require.NotContains(t, a.body, strings.TrimPrefix(text, "whsec_"))
		}
		require.NotContains(t, log.String(), strings.TrimPrefix(text, "whsec_"))
		require.Zero(t, s.count(`SELECT count(*) FROM postrider_internal.event_subscriptions
			WHERE position($1::bytea in signing_sealed) > 0 OR position($2::bytea in signing_sealed) > 0`,
			[]byte(strings.TrimPrefix(text, "whsec_")), raw), "sealed")
	}
	require.Len(t, s.post(newSecret, `{"previousValidForHours":0}`).secrets(), 1, "nothing else signs from now on")
}

func decoded(t *testing.T, secret any) []byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret.(string), "whsec_"))
	require.NoError(t, err)
	return raw
}

func TestDisabledSigningDeletesTheSecrets(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	s.put(billing, signedPut).json(201)
	for _, signing := range []string{``, `,"signing":null`, `,"signing":{}`, `,"signing":{"enabled":false}`} {
		before := s.post(showSecret, "").secrets()
		shown := s.put(billing, `{"endpointUrl":"https://example.com/in"`+signing+`}`).json(200)
		require.Equal(t, map[string]any{"enabled": false, "secrets": 0.0, "rotatedAt": nil, "previousValidUntil": nil},
			shown["signing"], signing)
		require.Empty(t, s.post(showSecret, "").secrets())
		require.Zero(t, s.count("SELECT count(*) FROM postrider_internal.event_subscriptions "+
			"WHERE signing_sealed IS NOT NULL"))
		s.put(billing, signedPut).json(200)
		require.NotEqual(t, before[0]["secret"], s.post(showSecret, "").secrets()[0]["secret"], "a new one")
	}
	secrets := s.post(showSecret, "").secrets()
	s.patch(billing, `{"labels":["a"]}`).json(200)
	require.Equal(t, secrets, s.post(showSecret, "").secrets(), "a patch keeps them")
	s.patch(billing, `{"signing":null}`).json(200)
	require.Empty(t, s.post(showSecret, "").secrets())
	require.Equal(t,
		`deliveries of event subscription "billing" of topic "orders" are not signed: set signing.enabled to true first`,
		s.post(newSecret, "").rejected(409, "SubscriptionNotSigned").Message)
	s.put(billing, signedPut).json(200)
	s.delete(billing).is(204)
	require.Zero(t, s.count("SELECT count(*) FROM postrider_internal.event_subscriptions "+
		"WHERE signing_sealed IS NOT NULL"), "deleted with it")
}

// endpointconf.TestParseSigningSecret has the forms of secrets.
func TestSigningRejections(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	s.subscription("orders", "billing", signedPut)
	before := s.post(showSecret, "").secrets()
	const form, hours = "secret must be whsec_ and base64, with padding, of 24 to 64 bytes",
		"previousValidForHours must be between 0 and 168, not 169"
	for body, message := range map[string]string{
		`{"secret":"` + ownSecret + `\u0000"}`:              "secret must not contain the character 0",
		`{"secret":7}`:                                      "secret must be a string",
		`{"previousValidForHours":1.5}`:                     "previousValidForHours must be a whole number",
		`{"validForHours":1}`:                               "validForHours is not a member; the members are: ",
		`{"secret":"x","previousValidForHours":169}`:        form + "; " + hours,
		`{"secret":"` + before[0]["secret"].(string) + `"}`: "secret must be another one: this one already signs",
	} {
		var got []string
		for _, detail := range s.post(newSecret, body).rejected(400, "InvalidRequest").Details {
			got = append(got, detail.Message)
		}
		require.Contains(t, strings.Join(got, "; "), message, body)
	}
	s.put(billing, `{"endpointUrl":"https://example.com","signing":{"secret":"`+ownSecret+`"}}`).
		rejected(400, "InvalidRequest")
	require.Equal(t, before, s.post(showSecret, "").secrets(), "nothing was changed")
	for range 2 {
		s.post(newSecret, `{"secret":null,"previousValidForHours":null}`).secrets()
	}
	rejection := s.post(newSecret, "").rejected(400, "InvalidRequest")
	require.Equal(t, []string{"previousValidForHours"}, targets(rejection))
	require.Contains(t, rejection.Message, "3 already sign")
}
