package bench

import (
	"cmp"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"time"
)

const (
	// firstID makes the numbers in ids equally long: 13 digits.
	firstID  = 1_000_000_000_000
	idPrefix = `{"id":"`
	idLength = 8 + 1 + 13 // run, dash, number
	// timeFormat of eventTime has a fixed length, too: all events of a load have the same size.
	timeFormat = "2006-01-02T15:04:05.000000Z"
	// leastEventBytes holds the members that every event of a load has.
	leastEventBytes = 320
)

// eventWriter writes the events of one target. They name their topic and metadataVersion, so that postrider adds
// nothing: they must arrive byte for byte.
type eventWriter struct{ middle, filler string }

// newEventWriter is for events of eventBytes each, from brace to brace.
func newEventWriter(t target, eventBytes int) (eventWriter, error) {
	subject := cmp.Or(t.subject, "/bench/load")
	path := strings.TrimSuffix(t.url[max(strings.Index(t.url, "/topics/"), 0):], "/api/events")
	w := eventWriter{middle: fmt.Sprintf(`","topic":"%s","subject":"%s","eventType":"Postrider.Bench",`+
		`"dataVersion":"1","metadataVersion":"1","eventTime":"`, path, subject)}
	missing := eventBytes - len(w.append(nil, newRunID(), 0, time.Now()))
	if missing < 0 {
		return w, fmt.Errorf("an event has %d bytes at least, not %d", eventBytes-missing, eventBytes)
	}
	w.filler = text(missing)
	return w, nil
}

// append adds the event with that number of a run. run has eight characters.
func (w eventWriter) append(body []byte, run string, number int64, sent time.Time) []byte {
	body = append(append(append(body, idPrefix...), run...), '-')
	body = append(strconv.AppendInt(body, firstID+number, 10), w.middle...)
	body = append(sent.UTC().AppendFormat(body, timeFormat), `","data":{"sentAt":`...)
	body = append(strconv.AppendInt(body, sent.UnixNano(), 10), `,"filler":"`...)
	return append(append(body, w.filler...), `"}}`...)
}

// newRunID is random: ids of two runs never meet in one ledger.
func newRunID() string { return strings.ToLower(rand.Text()[:8]) }

// text returns that many letters, the same in every run. They do not compress as one repeated letter would: a disk or a
// database that compresses must not look faster than it is.
func text(n int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"
	source, b := mathrand.New(mathrand.NewPCG(1, 2)), make([]byte, n)
	for i := range b {
		b[i] = letters[source.IntN(len(letters))]
	}
	return string(b)
}
