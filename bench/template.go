package bench

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	defaultEventBytes = 1024
	runDigits         = 8  // of the run, hexadecimal: two runs' ids never meet in one ledger
	sequenceDigits    = 12 // of the event in its run, decimal
	nanoDigits        = 19 // of a time in nanoseconds until the year 2286
	defaultSubject    = "/bench/load"
	eventTimeForm     = "2006-01-02T15:04:05.000000Z"
)

// template is a whole publish request in one piece of memory. Per event only three members of fixed width are written
// over: building 1 KB of JSON and HTTP anew would cost more than sending it.
type template struct {
	request []byte
	slots   []slot
	scratch []byte
	lines   []byte // of the ledger
	shape   string
}

// What the members of an event are, by whom it is published to.
const (
	// plainEvent names its topic and metadataVersion, so that postrider has nothing to add: it must arrive byte for byte.
	plainEvent = `{"id":"%[1]s","topic":"%[2]s","subject":"%[3]s","eventType":"Postrider.Bench","eventTime":"%[4]s",` +
		`"dataVersion":"1","metadataVersion":"1","data":{"sentAt":%[5]s,"filler":"`
	// sqlEvent is what an application writes.
	sqlEvent = `{"id":"%[1]s","subject":"%[3]s","eventType":"Postrider.Bench","eventTime":"%[4]s","dataVersion":"1",` +
		`"data":{"sentAt":%[5]s,"filler":"`
)

// slot is one event of a template.
type slot struct {
	event                []byte // the part of the request that is the event's object
	id, sequence         []byte
	eventTime, sentNanos []byte
}

// newRun is a random mark for the ids of one run.
func newRun() string {
	mark := make([]byte, runDigits/2)
	_, _ = rand.Read(mark) // never fails, as its documentation says
	return hex.EncodeToString(mark)
}

// newTemplate makes the request for publishing that many events of that many bytes each, from brace to brace, to the
// topic's endpoint.
func newTemplate(endpoint *url.URL, key, subject, run string, events, eventBytes int, shape string) (*template, error) {
	topic := strings.TrimSuffix(endpoint.Path, "/api/events")
	if topic == endpoint.Path {
		return nil, fmt.Errorf("%s is no topic's endpoint: it must end in /topics/{topic}/api/events", endpoint)
	}
	id := run + "-" + strings.Repeat("0", sequenceDigits)
	before := fmt.Sprintf(shape, id, topic, subject, eventTimeForm, strings.Repeat("1", nanoDigits))
	const after = `"}}`
	filler := eventBytes - len(before) - len(after)
	if filler < 0 {
		return nil, fmt.Errorf("an event of the load has %d bytes at least, not %d", len(before)+len(after), eventBytes)
	}
	event := "," + before + letters(filler) + after
	body := "[" + strings.Repeat(event, events)[1:] + "]"
	t := &template{request: publishRequest(endpoint, key, []byte(body)), slots: make([]slot, events), shape: shape}
	for i, rest := 0, t.request[len(t.request)-len(body)+1:]; i < events; i++ {
		t.slots[i] = newSlot(rest[:eventBytes], id)
		rest = rest[eventBytes+1:]
	}
	return t, nil
}

func newSlot(event []byte, id string) slot {
	find := func(what string, length int) []byte {
		at := bytes.Index(event, []byte(what))
		return event[at : at+length]
	}
	s := slot{event: event, id: find(id, len(id)), eventTime: find(eventTimeForm, len(eventTimeForm))}
	s.sequence = s.id[runDigits+1:]
	s.sentNanos = find(`"sentAt":`, len(`"sentAt":`)+nanoDigits)[len(`"sentAt":`):]
	return s
}

// publishRequest is the whole request that publishes a body.
func publishRequest(endpoint *url.URL, key string, body []byte) []byte {
	return fmt.Appendf(nil,
		"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\naeg-sas-key: %s\r\nContent-Length: %d\r\n\r\n%s",
		endpoint.RequestURI(), endpoint.Host, key, len(body), body)
}

// letters do not compress as a single repeated one would: a disk or a database that compresses must not look faster
// than it is. They are the same in every run.
func letters(n int) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"
	source := mathrand.New(mathrand.NewPCG(1, 2))
	text := make([]byte, n)
	for i := range text {
		text[i] = alphabet[source.IntN(len(alphabet))]
	}
	return string(text)
}

// patch makes it the request of events that are numbered from first.
func (t *template) patch(first int64, sent time.Time) {
	// Not into the request itself: AppendFormat writes all nine digits of the fraction before it cuts them.
	t.scratch = sent.UTC().AppendFormat(t.scratch[:0], eventTimeForm)
	for i, s := range t.slots {
		digits(s.sequence, first+int64(i))
		digits(s.sentNanos, sent.UnixNano())
		copy(s.eventTime, t.scratch)
	}
}

// body is the array of its events.
func (t *template) body() []byte {
	_, body, _ := bytes.Cut(t.request, []byte("\r\n\r\n"))
	return body
}

// ledgerLines are the lines that note its events in a ledger, valid until the next patch.
func (t *template) ledgerLines(prefix string) []byte {
	t.lines = t.lines[:0]
	for _, s := range t.slots {
		hash := Hash{}
		if t.shape == plainEvent {
			hash = sha256.Sum256(s.event)
		}
		t.lines = appendLine(t.lines, prefix, s.id, hash)
	}
	return t.lines
}

// digits writes n right-aligned with leading zeros.
func digits(into []byte, n int64) {
	for i := len(into) - 1; i >= 0; i-- {
		into[i] = byte('0' + n%10)
		n /= 10
	}
}

// publishable checks a whole number's width for digits.
func publishable(sequence int64) bool { return len(strconv.FormatInt(sequence, 10)) <= sequenceDigits }
