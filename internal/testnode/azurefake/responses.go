package azurefake

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

//go:embed responses.txt
var responses string

// Response is a response of a service. The texts follow Microsoft's pages on the errors of Service Bus, Event Hubs,
// Relay and the queue service, and reports of users; no page promises them.
type Response struct {
	Name    string // service, status and suffix of a row of responses.txt, such as sb-429-50004 or via-503
	Service string
	Status  int
	Body    string
	Header  http.Header
	Want    Want
}

// Want is how a sender must understand a response.
type Want struct {
	Outcome string // Event Grid's lastDeliveryOutcome
	Status  int    // what the retry policy looks up; 0 = the outcome itself, which no status has
}

// Responses returns all ways in which the services respond, read from responses.txt.
func Responses() []Response {
	var all []Response
	for line := range strings.Lines(responses) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.SplitN(line, "|", 6)
		for i := range columns {
			columns[i] = strings.TrimSpace(columns[i])
		}
		status, err1 := strconv.Atoi(columns[1])
		want, err2 := strconv.Atoi(columns[4])
		if err1 != nil || err2 != nil {
			panic("responses.txt: " + line)
		}
		for service := range strings.FieldsSeq(columns[0]) {
			r := respondWith(service, status, columns[2], columns[5])
			r.Want = Want{Outcome: columns[3], Status: want}
			all = append(all, r)
		}
	}
	return all
}

// Named returns one of Responses. It panics if there is none of the name.
func Named(name string) Response {
	for _, r := range Responses() {
		if r.Name == name {
			return r
		}
	}
	panic("azurefake has no response " + name)
}

func respondWith(service string, status int, suffix, text string) Response {
	r := Response{Name: strings.TrimSuffix(fmt.Sprintf("%s-%d-%s", service, status, suffix), "-"), Service: service}
	r.Status, r.Header, r.Body = status, http.Header{"Content-Type": {"application/xml; charset=utf-8"}}, text
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(text)) // a strings.Builder returns no error
	switch {
	case service == "via":
		r.Service, r.Header = Relay, http.Header{"Content-Type": {"text/plain"}, "Via": {"1.1 fake.servicebus.windows.net"}}
	case text == "":
		r.Header.Del("Content-Type")
	case strings.HasPrefix(text, "<"):
		r.Header.Set("Content-Type", "text/html; charset=us-ascii")
	case service == StorageQueue:
		r.Header.Set("X-Ms-Error-Code", suffix)
		r.Body = fmt.Sprintf("<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>%s</Code><Message>%s\nRequestId:"+
			"c3a1f0d2-0003-0029\nTime:2026-01-02T03:04:05.0000000Z</Message></Error>", suffix, &escaped)
	default:
		r.Body = fmt.Sprintf("<Error><Code>%d</Code><Detail>%s TrackingId:7e4a2f0c-6a1d-4b0e-9d53_G12, SystemTracker:"+
			"fake.servicebus.windows.net:orders, Timestamp:2026-01-02T03:04:05</Detail></Error>", status, &escaped)
	}
	if strings.Contains(text, "throttled") {
		r.Header.Set("Retry-After", "4")
	}
	return r
}

func (r Response) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.Header)
	w.WriteHeader(r.Status)
	_, _ = w.Write([]byte(r.Body)) // the client may be gone
}
