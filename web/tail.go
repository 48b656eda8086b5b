package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/postgres"
	"postrider/query"
	"postrider/web/display"
)

// tailView is what tail.html shows.
type tailView struct {
	Filter   query.TailFilter
	Stream   string
	Filtered bool
}

func tailFilter(c echo.Context) (query.TailFilter, error) {
	q := display.QueryOf(c)
	return query.TailFilter{Topic: q.Name("topic"), Subscription: q.Name("subscription"), Failed: q.Set("failed")}, q.Err
}

func (p *pages) tail(c echo.Context) error {
	f, err := tailFilter(c)
	if err != nil {
		return err
	}
	stream := "/ui/tail/stream"
	if query := c.Request().URL.RawQuery; query != "" {
		stream += "?" + c.QueryParams().Encode()
	}
	return p.show(c, "tail", "Live tail", false, tailView{Filter: f, Stream: stream, Filtered: f != query.TailFilter{}})
}

const (
	// tailPause is between two looks: as soon as a person notices.
	tailPause = time.Second
	// tailWrite is how long a reader may take to take a message.
	tailWrite = 15 * time.Second
	// tailBeat keeps proxies from closing a stream on which nothing happens.
	tailBeat = 15 * time.Second
)

// tailMessage is one line as the page's script gets it. All of it is text to be shown as text.
type tailMessage struct {
	At      string `json:"at"`
	Kind    string `json:"kind"`
	Tone    string `json:"tone"`
	Label   string `json:"label"`
	Where   string `json:"where"`
	Event   string `json:"event"`
	Type    string `json:"type"`
	Subject string `json:"subject"`
	What    string `json:"what"`
	Href    string `json:"href"`
}

// tailStream sends what happens as server-sent events, until the reader goes or the program stops.
func (p *pages) tailStream(c echo.Context) error {
	f, err := tailFilter(c)
	if err != nil {
		return err
	}
	w := c.Response()
	w.Header().Set(echo.HeaderContentType, "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if c.Request().Method == http.MethodHead {
		return nil
	}
	control := http.NewResponseController(w)
	tail := p.parts.Reader.NewTail(f)
	beat := time.Now()
	_ = control.Flush() // the browser hears that it is connected
	for p.stillIn(c) {
		messages, err := p.look(c, tail)
		if err != nil {
			return nil // the browser asks again by itself
		}
		if len(messages) == 0 && time.Since(beat) > tailBeat {
			messages = []byte(": still here\n\n")
		}
		if len(messages) > 0 {
			beat = time.Now()
			_ = control.SetWriteDeadline(beat.Add(tailWrite))
			if _, err := w.Write(messages); err != nil {
				return nil
			}
			if err := control.Flush(); err != nil {
				return nil
			}
		}
		select {
		case <-time.After(tailPause):
		case <-c.Request().Context().Done():
			return nil
		case <-p.stopping.Done():
			return nil
		}
	}
	return nil
}

// stillIn: a session may have ended since the stream began. What was found of it holds for a second.
func (p *pages) stillIn(c echo.Context) bool {
	if c.Get(sessionKey) == nil {
		return true // nobody has to sign in
	}
	_, err := p.sessionOf(c)
	return err == nil
}

// look is what one look has found, as the stream sends it.
func (p *pages) look(c echo.Context, tail *query.Tail) ([]byte, error) {
	ctx, cancel := pageContext(c)
	defer cancel()
	lines, err := tail.Next(ctx)
	if errors.Is(err, postgres.ErrUnavailable) || errors.Is(err, postgres.ErrTooSlow) {
		return []byte("event: away\ndata: {}\n\n"), nil
	}
	if err != nil {
		return nil, err
	}
	var out []byte
	for i := range lines {
		data, err := json.Marshal(messageOf(&lines[i]))
		if err != nil {
			return nil, err
		}
		out = fmt.Appendf(out, "data: %s\n\n", data)
	}
	return out, nil
}

func messageOf(l *query.TailLine) tailMessage {
	m := tailMessage{
		At: l.At.UTC().Format("15:04:05.000"), Kind: l.Kind, Tone: display.Tone(l.Kind), Label: l.Kind, Where: l.Topic,
		Event: display.Visible(l.EventID), Type: display.Visible(l.Type), Subject: display.Visible(l.Subject),
	}
	if l.Kind == "published" {
		m.Href = "/ui/events/" + l.SystemID.String()
		return m
	}
	m.Tone, m.Label, m.Where = display.Tone(l.Outcome), l.Outcome, l.Topic+" / "+l.Subscription
	m.What = display.Phrase("attempt "+strconv.Itoa(l.Number), display.Met(l.Number, l.Status),
		display.Milliseconds(l.DurationMs), l.Verdict)
	switch {
	case l.DeliveryID != nil:
		m.Href = "/ui/deliveries/" + display.IDText(*l.DeliveryID)
	case l.BatchID != nil:
		m.Href, m.Event = "/ui/batches/"+display.IDText(*l.BatchID), "batch "+display.IDText(*l.BatchID)
	}
	return m
}
