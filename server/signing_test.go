package server_test

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/server"
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

func TestSigningSecrets(t *testing.T) {
	t.Parallel()
	log := &lines{}
	s := setup(t, func(o *server.Options) {
		o.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	s.topic("orders", "")
	responses := []response{s.put(billing, signedPut)}
	made := responses[0].json(201)["signing"].(map[string]any)
	require.Equal(t,
		map[string]any{"enabled": true, "secrets": 1.0, "rotatedAt": made["rotatedAt"], "previousValidUntil": nil}, made)
	hoursFromNow(t, 0, made["rotatedAt"])

	first := s.post(showSecret, "").secrets()
	require.Len(t, first, 1)
	encoded, prefixed := strings.CutPrefix(first[0]["secret"].(string), "whsec_")
	require.True(t, prefixed)
	raw, err := base64.StdEncoding.DecodeString(encoded)
	require.NoError(t, err)
	require.Len(t, raw, 32)
	require.Equal(t, made["rotatedAt"], first[0]["createdAt"])
	require.Nil(t, first[0]["validUntil"])
	require.Contains(t, log.String(), `"msg":"signing secrets of an event subscription were shown","topic":"orders",`+
		`"subscription":"billing","client":"127.0.0.1"`)

	second := s.post(newSecret, "").secrets()
	require.Len(t, second, 2)
	require.NotEqual(t, first[0]["secret"], second[0]["secret"])
	require.Equal(t, first[0]["secret"], second[1]["secret"])
	require.Nil(t, second[0]["validUntil"])
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
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.event_subscriptions WHERE signed"))

	alone := s.post(newSecret, `{"previousValidForHours":0}`).secrets()
	require.Len(t, alone, 1, "nothing else signs from now on")
	require.NotContains(t, third, alone[0])
}

func decoded(t *testing.T, secret any) []byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret.(string), "whsec_"))
	require.NoError(t, err)
	return raw
}

func TestSigningSwitchedOffForgetsTheSecrets(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	off := map[string]any{"enabled": false, "secrets": 0.0, "rotatedAt": nil, "previousValidUntil": nil}
	s.put(billing, signedPut).json(201)
	for _, signing := range []string{``, `,"signing":null`, `,"signing":{}`, `,"signing":{"enabled":false}`} {
		before := s.post(showSecret, "").secrets()
		shown := s.put(billing, `{"endpointUrl":"https://example.com/in"`+signing+`}`).json(200)
		require.Equal(t, off, shown["signing"], signing)
		require.Empty(t, s.post(showSecret, "").secrets())
		require.Equal(t, 1, s.count("SELECT count(*) FROM postrider_internal.event_subscriptions WHERE signing_sealed IS "+
			"NULL"))
		require.Equal(t,
			`deliveries of event subscription "billing" of topic "orders" are not signed: set signing.enabled to true first`,
			s.post(newSecret, "").rejected(409, "SubscriptionNotSigned").Message)
		s.put(billing, signedPut).json(200)
		after := s.post(showSecret, "").secrets()
		require.Len(t, after, 1)
		require.NotEqual(t, before[0]["secret"], after[0]["secret"], "a new one")
	}
	secrets := s.post(showSecret, "").secrets()
	s.patch(billing, `{"labels":["a"]}`).json(200)
	require.Equal(t, secrets, s.post(showSecret, "").secrets(), "a patch keeps them")
	s.patch(billing, `{"signing":null}`).json(200)
	require.Empty(t, s.post(showSecret, "").secrets())
	s.put(billing, signedPut).json(200)
	s.delete(billing).is(204)
	require.Zero(t, s.count("SELECT count(*) FROM postrider_internal.event_subscriptions WHERE signing_sealed IS NOT "+
		"NULL"),
		"deleted with it")
}

func TestSigningRejections(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	s.subscription("orders", "billing", signedPut)
	before := s.post(showSecret, "").secrets()
	sized := func(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	const form, hours = "secret must be whsec_ and base64, with padding, of 24 to 64 bytes",
		"previousValidForHours must be between 0 and 168, not %d"
	// endpointconf.TestParseSigningSecret has the forms of secrets.
	for body, message := range map[string]string{
		`{"secret":""}`:                        form,
		`{"secret":"` + sized(65) + `"}`:       form,
		`{"secret":"` + ownSecret + `\u0000"}`: form,
		`{"secret":7}`:                         "secret must be a string",
		`{"previousValidForHours":-1}`:         fmt.Sprintf(hours, -1),
		`{"previousValidForHours":169}`:        fmt.Sprintf(hours, 169),
		`{"previousValidForHours":1.5}`:        "previousValidForHours must be a whole number",
		`{"validForHours":1}`: "validForHours is not a member; the members " +
			"are: previousValidForHours, secret",
		`{"secret":"x","previousValidForHours":169}`:        form + "; " + fmt.Sprintf(hours, 169),
		`{"secret":"` + before[0]["secret"].(string) + `"}`: "secret must be another one: this one already signs",
	} {
		var got []string
		for _, detail := range s.post(newSecret, body).rejected(400, "InvalidRequest").Details {
			got = append(got, detail.Message)
		}
		require.Equal(t, message, strings.Join(got, "; "), body)
	}
	s.put(billing, `{"endpointUrl":"https://example.com","signing":{"enabled":"yes"}}`).rejected(400, "InvalidRequest")
	s.put(billing, `{"endpointUrl":"https://example.com","signing":{"secret":"`+ownSecret+`"}}`).
		rejected(400, "InvalidRequest")
	require.Equal(t, before, s.post(showSecret, "").secrets(), "nothing was changed")

	s.post(newSecret, `{"secret":null,"previousValidForHours":1}`).secrets()
	s.post(newSecret, `{"secret":"`+sized(24)+`","previousValidForHours":null}`).secrets()
	rejection := s.post(newSecret, `{"secret":"`+sized(64)+`"}`).rejected(400, "InvalidRequest")
	require.Equal(t, []string{"previousValidForHours"}, targets(rejection))
	require.Contains(t, rejection.Message, "3 already sign")
	require.Len(t, s.post(newSecret, `{"secret":"`+sized(64)+`","previousValidForHours":0}`).secrets(), 1)

	for _, path := range []string{
		"/v1/topics/orders/subscriptions/nothing", "/v1/topics/nothing/subscriptions/billing",
		"/v1/topics/orders/subscriptions/%00", "/v1/topics/%ff/subscriptions/billing",
	} {
		s.post(path+"/getSigningSecrets", "").rejected(404, "NotFound")
		s.post(path+"/rotateSigningSecret", "").rejected(404, "NotFound")
	}
}
