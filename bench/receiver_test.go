package main

import (
	"crypto/sha256"
	"hash/maphash"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"postrider/internal/ledger"
)

func newReceiver(t *testing.T) (r *receiver, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "received")
	l, err := ledger.Create(file)
	require.NoError(t, err)
	return &receiver{ctx: t.Context(), ledger: l, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}, file
}

// post has a receiver handle a request, without a network.
func post(r *receiver, path, body string) *fasthttp.RequestCtx {
	var request fasthttp.Request
	request.Header.SetMethod(fasthttp.MethodPost)
	request.SetRequestURI(path)
	request.SetBodyString(body)
	var ctx fasthttp.RequestCtx
	ctx.Init(&request, nil, nil)
	r.handle(&ctx)
	return &ctx
}

func TestReceiverNotesEvents(t *testing.T) {
	t.Parallel()
	r, file := newReceiver(t)
	const a, b = `{"id":"a","data":{"sentAt":5,"filler":"x"}}`, `{"specversion":"1.0","id":"b","data":{"sentAt":7,"f":""}}`
	for _, p := range []struct{ path, body string }{
		{"/x", "[" + a + "]"}, {"/x", "[" + a + "]"}, {"/y", "[" + a + "," + b + "]"}, {"/x", b}, {"/x", "[]"},
	} {
		require.Equal(t, fasthttp.StatusOK, post(r, p.path, p.body).Response.StatusCode())
	}
	require.Equal(t, receiverStats{attempts: 5, requests: 5, received: 5, distinct: 4}, r.counters(), "x/a, y/a, y/b, x/b")
	arrivals, err := r.close()
	require.NoError(t, err)
	var sent []int64
	for _, a := range arrivals {
		require.True(t, a.acknowledged)
		sent = append(sent, a.sentAt)
	}
	require.Equal(t, []int64{5, 5, 7, 7}, sent, "without the duplicate")
	entry := func(id, text string) ledger.Entry { return ledger.Entry{ID: id, Hash: sha256.Sum256([]byte(text))} }
	got, err := ledger.Read(file)
	require.NoError(t, err)
	require.Equal(t,
		[]ledger.Entry{entry("x/a", a), entry("x/a", a), entry("y/a", a), entry("y/b", b), entry("x/b", b)}, got)
	late := post(r, "/x", a).Response.StatusCode()
	require.Equal(t, fasthttp.StatusInternalServerError, late, "what is not noted is not acknowledged")
}

func TestReceiverThatFails(t *testing.T) {
	t.Parallel()
	r, _ := newReceiver(t)
	statuses := func(n int, path string) map[int]int {
		counted := map[int]int{}
		for range n {
			counted[post(r, path, `[{"id":"a","data":{"sentAt":5}}]`).Response.StatusCode()]++
		}
		return counted
	}
	require.Equal(t, map[int]int{200: 40, 503: 10}, statuses(50, "/x?failing=20"))
	require.Equal(t, map[int]int{503: 5}, statuses(5, "/x?failing=100"))
	require.True(t, post(r, "/x?hang=1", "").Hijacked(), "no response")
	require.EqualValues(t, 40, r.counters().requests, "a rejected request is no receipt")

	r.inProgress = 2
	limited := &post(r, "/x?atOnce=2&retryAfter=3", "").Response
	require.Equal(t, 429, limited.StatusCode())
	require.Equal(t, "3", string(limited.Header.Peek("Retry-After")))
	r.inProgress = 1
	require.Equal(t, map[int]int{200: 9}, statuses(9, "/x?atOnce=2"), "a request leaves")
	r, _ = newReceiver(t)
	counted := statuses(30, "/x?perSecond=1&atOnce=0")
	require.GreaterOrEqual(t, counted[200], burst)
	require.Positive(t, counted[429])
}
