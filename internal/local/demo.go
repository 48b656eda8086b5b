// Package local helps programs that listen on this machine: free ports, ready files, and the demo endpoint of
// `postrider sink` and `postrider dev`.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxBody     = 2 << 20 // twice Event Grid's limit of a request (1 MB)
	flakyUntil  = 2       // attempts that fail at /flaky
	defaultSlow = 2 * time.Second
	maxSlow     = 10 * time.Minute
)

const demoPaths = `The demo endpoint has these paths:
  /ok             200
  /flaky          500 to the first two delivery attempts of an event, then 204
  /slow?ms=2000   200 after that many milliseconds, 600000 at most
  /status/{code}  that status, 200 to 599
  /hang           no response until the client closes the connection
`

// SinkRequest is a request to a demo endpoint.
type SinkRequest struct {
	Path          string
	DeliveryCount int      // header aeg-delivery-count: the number of earlier attempts
	EventIDs      []string // of the events in the body, in their order
	Status        int      // of the response; 0 at /hang
}

// NewDemoSink returns an endpoint with the behaviors of demoPaths. Except at /status and /hang it responds to the
// validation handshakes of both schemas. Bodies of more than 2 MiB get a 413. onRequest, unless nil, is called for each
// request, also concurrently. Source of the handshakes: Microsoft, Endpoint validation with Event Grid event schema,
// 2024-09-25; CNCF, HTTP 1.1 Web Hooks for Event Delivery 1.0.1, section 4.
func NewDemoSink(onRequest func(SinkRequest)) http.Handler {
	if onRequest == nil {
		onRequest = func(SinkRequest) {}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		reply := rejection(err)
		if err == nil {
			reply = demoReply(r, body)
		}
		onRequest(describe(r, body, reply.status))
		reply.send(r.Context(), w)
	})
}

// reply is a response of the demo endpoint; status 0 is no response.
type reply struct {
	status int
	after  time.Duration
	header map[string]string
	body   string
}

func rejection(err error) reply {
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return reply{status: http.StatusRequestEntityTooLarge, body: fmt.Sprintf("the limit is %d bytes\n", maxBody)}
	}
	return reply{status: http.StatusBadRequest, body: "the body could not be read\n"}
}

func demoReply(r *http.Request, body []byte) reply {
	path, code := r.URL.Path, ""
	if rest, ok := strings.CutPrefix(path, "/status/"); ok {
		path, code = "/status", rest
	}
	switch path {
	case "/hang":
		return reply{}
	case "/status":
		status, err := strconv.Atoi(code)
		if err != nil || status < 200 || status > 599 {
			return reply{status: http.StatusBadRequest, body: "a status is a number from 200 to 599, as in /status/503\n"}
		}
		return reply{status: status}
	case "/ok", "/flaky", "/slow":
		if response, ok := handshake(r, body); ok {
			return response
		}
	default:
		return reply{status: http.StatusNotFound, body: demoPaths}
	}
	switch {
	case path == "/flaky" && deliveryCount(r) < flakyUntil:
		return reply{status: http.StatusInternalServerError, body: "flaky: fails twice, then succeeds\n"}
	case path == "/flaky":
		return reply{status: http.StatusNoContent}
	case path == "/slow":
		return slowReply(r.URL.Query().Get("ms"))
	}
	return reply{status: http.StatusOK}
}

func slowReply(ms string) reply {
	if ms == "" {
		return reply{status: http.StatusOK, after: defaultSlow}
	}
	n, err := strconv.Atoi(ms)
	if err != nil || n < 0 {
		return reply{status: http.StatusBadRequest, body: "ms is a number of milliseconds, as in /slow?ms=2000\n"}
	}
	return reply{status: http.StatusOK, after: time.Duration(min(n, int(maxSlow.Milliseconds()))) * time.Millisecond}
}

// RespondToHandshake responds to the validation handshakes of both schemas. It returns false and writes nothing for
// other requests.
func RespondToHandshake(w http.ResponseWriter, r *http.Request, body []byte) bool {
	response, ok := handshake(r, body)
	if ok {
		response.send(r.Context(), w)
	}
	return ok
}

// handshake returns the response to a validation event or to a CloudEvents OPTIONS request. ok is false for other
// requests.
func handshake(r *http.Request, body []byte) (response reply, ok bool) {
	if origin := r.Header.Get("WebHook-Request-Origin"); r.Method == http.MethodOptions && origin != "" {
		return reply{status: http.StatusOK, header: map[string]string{
			"Allow": "POST", "WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": "*", // no limit
		}}, true
	}
	if !strings.EqualFold(r.Header.Get("aeg-event-type"), "SubscriptionValidation") {
		return reply{}, false
	}
	var events []struct {
		Data struct {
			ValidationCode string `json:"validationCode"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &events) != nil || len(events) != 1 || events[0].Data.ValidationCode == "" {
		return reply{
			status: http.StatusBadRequest, body: "a validation request has one event with data.validationCode\n",
		}, true
	}
	text, _ := json.Marshal(map[string]string{"validationResponse": events[0].Data.ValidationCode}) // of texts
	return reply{
		status: http.StatusOK, header: map[string]string{"Content-Type": "application/json"}, body: string(text),
	}, true
}

func describe(r *http.Request, body []byte, status int) SinkRequest {
	described := SinkRequest{Path: r.URL.Path, DeliveryCount: deliveryCount(r), Status: status}
	type event struct {
		ID string `json:"id"`
	}
	var events []event
	if json.Unmarshal(body, &events) != nil { // a CloudEvent
		events = make([]event, 1)
		if json.Unmarshal(body, &events[0]) != nil {
			return described
		}
	}
	for _, e := range events {
		described.EventIDs = append(described.EventIDs, e.ID)
	}
	return described
}

func deliveryCount(r *http.Request) int {
	n, _ := strconv.Atoi(r.Header.Get("aeg-delivery-count"))
	return n
}

// send waits and responds, unless the client closes the connection first. To send no response, it panics with
// ErrAbortHandler: the server closes the connection and logs nothing.
func (a reply) send(ctx context.Context, w http.ResponseWriter) {
	if a.status == 0 {
		<-ctx.Done()
		panic(http.ErrAbortHandler)
	}
	select {
	case <-time.After(a.after):
	case <-ctx.Done():
		return
	}
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.status)
	if a.status != http.StatusNoContent && a.status != http.StatusNotModified {
		_, _ = io.WriteString(w, a.body) // the client may have closed the connection
	}
}
