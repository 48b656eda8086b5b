package jobs_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/policy"
)

// chunked responds with chunks that never end, or are malformed.
func chunked(status string, chunk func(n int) string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		respondRaw("HTTP/1.1 " + status + "\r\nTransfer-Encoding: chunked\r\n\r\n")(conn)
		for n := 0; ; n++ {
			if _, err := io.WriteString(conn, chunk(n)); err != nil {
				return
			}
		}
	}
}

// headed responds with this many header fields of this many bytes each, some not UTF-8.
func headed(status string, fields, bytes int) func(*net.TCPConn) {
	var head strings.Builder
	for n := range fields {
		fmt.Fprintf(&head, "X-%d: %s\r\n", n, strings.Repeat("\xff\xfe", bytes/2))
	}
	return respondRaw("HTTP/1.1 " + status + "\r\n" + head.String() + "Content-Length: 0\r\n\r\n")
}

// Huge or malformed responses cost what an ordinary one costs: their status counts, a part of them is stored, and the
// attempt ends in time.
func TestHugeAndMalformedResponses(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	copyPolicy(t, tn, policy.DefaultName, "patient", `{"ack_timeout": "10 minutes"}`) // none is waited for
	mebibyte := "100000\r\n" + strings.Repeat("\x00", 1<<20) + "\r\n"
	constant := func(chunk string) func(int) string { return func(int) string { return chunk } }
	cases := []endpointCase{
		{"200-in-endless-chunks", chunked("200 OK",
			constant(mebibyte)), "", policy.OutcomeDelivered, 200, policy.Delivered, ""},
		{"500-in-endless-chunks", chunked("500 Broken",
			constant(mebibyte)), "", policy.OutcomeGenericError, 500, policy.Retry, ""},
		{"chunks-of-one-byte", chunked("500 Broken",
			constant("1\r\n\xff\r\n")), "", policy.OutcomeGenericError, 500, policy.Retry, ""},
		{"a-chunk-of-16-exabytes", chunked("500 Broken",
			constant("ffffffffffffffff\r\nx")), "", policy.OutcomeGenericError, 500, policy.Retry, ""},
		{"a-chunk-without-size", chunked("500 Broken",
			constant("size\r\n")), "", policy.OutcomeGenericError, 500, policy.Retry, ""},
		{"an-endless-chunk-extension", chunked("500 Broken", func(n int) string {
			if n == 0 {
				return "1;x="
			}
			return "xxxxxxxxxxxxxxxx"
		}), "", policy.OutcomeGenericError, 500, policy.Retry, ""},
		{"endless-trailers", chunked("500 Broken", func(n int) string {
			if n == 0 {
				return "1\r\nx\r\n0\r\n"
			}
			return fmt.Sprintf("X-%d: y\r\n", n)
		}), "", policy.OutcomeGenericError, 500, policy.Retry, ""},
		{"60-kb-of-header", headed("500 Broken", 1, 60<<10), "", policy.OutcomeGenericError, 500, policy.Retry, ""},
		{"64-kb-of-header", headed("500 Broken", 1, 64<<10), "", policy.OutcomeSocketError, 0, policy.Retry, "header"},
		{"2000-header-fields", headed("500 Broken", 2000, 20), "", policy.OutcomeGenericError, 500, policy.Retry, ""},
		{"400-and-all-of-it", headed("400 \xff\xfe", 1000, 40), "", policy.OutcomeBadRequest, 400, policy.DeadLetter, ""},
	}
	for _, a := range cases {
		url, _ := rawEndpoint(t, a.serve)
		subscribe(t, tn, a.name, url, under("patient"))
	}
	tn.Start(t)
	publishOne(t, tn, "e")
	tn.AttemptsMade(t, len(cases))
	for _, a := range cases {
		requireCase(t, tn, a)
	}
	for _, view := range []string{"delivery_attempts", "deliveries"} {
		require.Len(t, everything(t, tn, view), len(cases), view)
	}
	require.Len(t, everything(t, tn, "dead_letters"), 1)
	require.Zero(t, tn.Recorded(t, "octet_length(response_headers) > 4096 OR octet_length(response_excerpt) > 4096"))
	require.Zero(t, tn.Rows(t, "delivery_attempts", "response_excerpt LIKE '(postrider:%'"), "nothing had to be left out")
}

// A batch with a poisonous response ends like a single delivery: the rows of the members and of the batch are written.
func TestPoisonousResponsesToABatch(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	url, _ := rawEndpoint(t,
		respondRaw("HTTP/1.1 400 \xff\x01\r\nX-Bad: \xff\xfe\r\nContent-Length: 6\r\n\r\n\x00\xff\xfe\xc3\x28x"))
	subscribe(t, tn, "all", url, func(s *catalog.SubscriptionSpec) { s.MaxEventsPerBatch = new(10) })
	publishMany(t, tn, 10)
	tn.Start(t)
	tn.Become(t, 10, "SELECT count(*) FROM postrider.dead_letters WHERE last_response = '\\000\\377\\376\\303(x'")
	require.Len(t, everything(t, tn, "deliveries"), 10)
	require.NotEmpty(t, everything(t, tn, "delivery_attempts"))
}
