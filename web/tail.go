package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/web/display"
	"postrider/web/site"
)

type tailView struct {
	Filter *display.Filter
	Stream string
}

func tailFilter(c echo.Context) (f *display.Filter, filter query.TailFilter) {
	f = display.FilterOf(c)
	filter.Topic, filter.Subscription = owner(f)
	filter.Failed = f.Check("Only failures", "failed", "")
	return f, filter
}

func (p *pages) tail(_ context.Context, c echo.Context) error {
	f, _ := tailFilter(c)
	if f.Err != nil {
		return f.Err
	}
	return p.Show(c, "tail", "Live tail", false, tailView{f, display.SameFilter(c, "/ui/tail/stream")})
}

const (
	// tailPause is the time between two queries.
	tailPause = time.Second
	// tailWrite is the timeout of writing a message to the browser.
	tailWrite = 15 * time.Second
	// tailBeat is the longest time without data, so that proxies keep the stream open.
	tailBeat = 15 * time.Second
)

// tailStream sends new events and attempts as server-sent events until the browser disconnects or the program stops.
func (p *pages) tailStream(c echo.Context) error {
	f, filter := tailFilter(c)
	if f.Err != nil {
		return f.Err
	}
	w := c.Response()
	w.Header().Set(echo.HeaderContentType, "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if c.Request().Method == http.MethodHead {
		return nil
	}
	control := http.NewResponseController(w)
	tail := p.Parts.Reader.NewTail(filter)
	beat := time.Now()
	_ = control.Flush() // confirms the connection
	for p.signedIn(c) {
		messages, err := p.tailMessages(c, tail)
		if err != nil {
			return nil // the browser reconnects
		}
		if len(messages) == 0 && time.Since(beat) > tailBeat {
			messages = []byte(": alive\n\n")
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
		case <-p.Stopping.Done():
			return nil
		}
	}
	return nil
}

// signedIn reports whether the session is still valid. Package access queries it at most once a second.
func (p *pages) signedIn(c echo.Context) bool {
	if site.SessionIn(c) == nil {
		return true // a dashboard without sign-in
	}
	_, err := site.SessionOf(p.Parts.Access, c)
	return err == nil
}

// tailMessages are the messages since the last call.
func (p *pages) tailMessages(c echo.Context, tail *query.Tail) ([]byte, error) {
	ctx, cancel := site.Context(c)
	defer cancel()
	lines, err := tail.Next(ctx)
	var busy *postgres.BusyError
	if errors.As(err, &busy) {
		return []byte("event: busy\ndata: {}\n\n"), nil
	}
	if errors.Is(err, postgres.ErrUnavailable) || errors.Is(err, postgres.ErrTooSlow) {
		return []byte("event: unavailable\ndata: {}\n\n"), nil
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

// messageOf is a line for the page's script, which shows it as text.
func messageOf(l *query.TailLine) map[string]string {
	m := map[string]string{
		"at": l.At.UTC().Format("15:04:05.000"), "kind": l.Kind, "event": display.Visible(l.EventID),
		"type": display.Visible(l.Type), "subject": display.Visible(l.Subject),
		"tone": display.Tone(l.Kind), "label": l.Kind, "where": l.Topic,
	}
	if l.Kind == "published" {
		m["href"] = "/ui/events/" + l.SystemID.String()
		return m
	}
	m["tone"], m["label"], m["where"] = display.Tone(l.Outcome), l.Outcome, l.Topic+" / "+l.Subscription
	m["what"] = fmt.Sprintf("attempt %d, %s, %s", l.Number, display.ResponseText(l.Number, l.Status),
		display.Milliseconds(l.DurationMs))
	if l.Verdict != "" {
		m["what"] += ", " + l.Verdict
	}
	switch {
	case l.DeliveryID != nil:
		m["href"] = deliveryPath(*l.DeliveryID)
	case l.BatchID != nil:
		m["href"], m["event"] = "/ui/batches/"+strconv.FormatInt(*l.BatchID, 10), "batch "+strconv.FormatInt(*l.BatchID, 10)
	}
	return m
}
