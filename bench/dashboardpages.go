package bench

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// viewer asks for pages as a browser does.
type viewer struct {
	base   string
	client *http.Client
	pool   *pgxpool.Pool
}

// get asks for one page and reads all of it.
func (v *viewer) get(ctx context.Context, path string) (p PageTimes, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+path, nil)
	if err != nil {
		return p, nil, err
	}
	began := time.Now()
	answer, err := v.client.Do(request)
	if err != nil {
		return p, nil, err
	}
	defer answer.Body.Close()
	if body, err = io.ReadAll(answer.Body); err != nil {
		return p, nil, fmt.Errorf("read %s: %w", path, err)
	}
	return PageTimes{
		Path: path, Status: answer.StatusCode, Bytes: len(body), FirstMs: float64(time.Since(began).Microseconds()) / 1000,
	}, body, nil
}

// dashboardPages are the pages without an id, with filters that find much, little and nothing: what is not there takes
// the longest to look for.
var dashboardPages = []struct{ name, path string }{
	{"overview", "/ui/"},
	{"problems", "/ui/problems?within=1h"},
	{"problems of a day", "/ui/problems"},
	{"problems of a week", "/ui/problems?within=7d"},
	{"live tail", "/ui/tail"},
	{"events", "/ui/events"},
	{"events of a topic", "/ui/events?topic=orders"},
	{"events of a small topic", "/ui/events?topic=vouchers"},
	{"event by id", "/ui/events?event=order-42"},
	{"events nobody wanted", "/ui/events?unmatched=1"},
	{"events of a type", "/ui/events?type=Shop.Changed"},
	{"events of no type", "/ui/events?type=Shop.Closed"},
	{"events by subject", "/ui/events?subject=/things/77"},
	{"events of no subject", "/ui/events?subject=/people/"},
	{"deliveries", "/ui/deliveries"},
	{"deliveries of a topic", "/ui/deliveries?topic=orders"},
	{"deliveries of a small topic", "/ui/deliveries?topic=vouchers"},
	{"deliveries of one", "/ui/deliveries?topic=vouchers&subscription=mail"},
	{"deliveries of a name", "/ui/deliveries?subscription=billing"},
	{"deliveries pending", "/ui/deliveries?state=pending"},
	{"deliveries delivered", "/ui/deliveries?state=delivered"},
	{"deliveries dropped", "/ui/deliveries?state=dropped"},
	{"deliveries canceled", "/ui/deliveries?state=canceled"},
	{"deliveries on hold", "/ui/deliveries?hold=paused"},
	{"deliveries on no hold", "/ui/deliveries?hold=not_validated"},
	{"deliveries of an outcome", "/ui/deliveries?outcome=Busy"},
	{"deliveries of no outcome", "/ui/deliveries?outcome=TimedOut"},
	{"deliveries of one and no outcome", "/ui/deliveries?topic=orders&subscription=billing&outcome=TimedOut"},
	{"delivery by event", "/ui/deliveries?event=order-42"},
	{"batches", "/ui/batches"},
	{"batches of one", "/ui/batches?topic=orders&subscription=billing"},
	{"batches pending", "/ui/batches?state=pending"},
	{"dead letters", "/ui/dead-letters"},
	{"dead letters of a topic", "/ui/dead-letters?topic=orders"},
	{"dead letters of one", "/ui/dead-letters?topic=vouchers&subscription=mail"},
	{"dead letters of a reason", "/ui/dead-letters?reason=UndeliverableDueToHttpBadRequest"},
	{"dead letters of no reason", "/ui/dead-letters?reason=TimeToLiveExceeded"},
	{"dead letters of a status", "/ui/dead-letters?status=400&outcome=BadRequest"},
	{"dead letters without an answer", "/ui/dead-letters?status=0"},
	{"dead letter by event", "/ui/dead-letters?eventId=order-42"},
	{"dead letters of no type", "/ui/dead-letters?eventType=Shop.Closed"},
	{"redeliver many", "/ui/dead-letters/redeliver"},
	{"redeliver many of a topic", "/ui/dead-letters/redeliver?topic=orders"},
	{"purge many", "/ui/dead-letters/purge"},
	{"operations", "/ui/operations"},
	{"topics", "/ui/topics"},
	{"a topic", "/ui/topics/orders"},
	{"a topic, a day", "/ui/topics/orders?range=24h"},
	{"a topic, a week", "/ui/topics/orders?range=7d"},
	{"a small topic", "/ui/topics/vouchers"},
	{"overview, a day", "/ui/?range=24h"},
	{"overview, a week", "/ui/?range=7d"},
	{"event subscriptions", "/ui/subscriptions"},
	{"event subscriptions on hold", "/ui/subscriptions?hold=any"},
	{"an event subscription", "/ui/subscriptions/orders/billing"},
	{"an event subscription, a day", "/ui/subscriptions/orders/billing?range=24h"},
	{"an event subscription, a week", "/ui/subscriptions/orders/billing?range=7d"},
	{"retry policies", "/ui/policies"},
	{"jobs", "/ui/jobs"},
	{"jobs of no kind", "/ui/jobs?kind=route"},
	{"storage", "/ui/storage"},
	{"audit", "/ui/audit"},
	{"audit of nobody", "/ui/audit?actor=nobody"},
}

// dashboardItems are the pages of one thing, by the query that finds one.
var dashboardItems = []struct{ name, path, query string }{
	{"an event", "/ui/events/%s", "SELECT id FROM postrider_internal.events ORDER BY id DESC OFFSET 1000 LIMIT 1"},
	{"a pending delivery", "/ui/deliveries/%s", "SELECT id FROM postrider_internal.deliveries " +
		"WHERE subscription_id = 11 ORDER BY id LIMIT 1"},
	{"a delivery on hold", "/ui/deliveries/%s", "SELECT id FROM postrider_internal.deliveries WHERE hold = 'probation' " +
		"ORDER BY id LIMIT 1"},
	{"a finished delivery", "/ui/deliveries/%s", "SELECT id FROM postrider_internal.delivery_history WHERE attempts = 2 " +
		"ORDER BY id LIMIT 1"},
	{"a batch", "/ui/batches/%s", "SELECT min(id) FROM postrider_internal.batches"},
	{"a dead letter", "/ui/dead-letters/%s", "SELECT id FROM postrider_internal.dead_letters ORDER BY dead_lettered_at " +
		"LIMIT 1"},
	{"events of an hour", "/ui/events?from=%s", "SELECT to_char(now() AT TIME ZONE 'UTC' - interval '1 hour', " +
		"'YYYY-MM-DD\"T\"HH24:MI')"},
	{"events before a time", "/ui/events?to=%s", "SELECT to_char(now() AT TIME ZONE 'UTC' - interval '80 hours', " +
		"'YYYY-MM-DD\"T\"HH24:MI')"},
	{"dead letters before a time", "/ui/dead-letters?to=%s", "SELECT to_char(now() AT TIME ZONE 'UTC' - interval '80 " +
		"hours', 'YYYY-MM-DD\"T\"HH24:MI')"},
	{"deliveries far back", "/ui/deliveries?before=%s", "SELECT max(id) / 10 FROM postrider_internal.delivery_history"},
	{"deliveries far back, dropped", "/ui/deliveries?state=dropped&before=%s", "SELECT max(id) / 10 " +
		"FROM postrider_internal.delivery_history"},
	{"events far back", "/ui/events?before=%s", "SELECT id FROM postrider_internal.events WHERE day = (SELECT min(day) " +
		"FROM postrider_internal.events) ORDER BY id DESC LIMIT 1"},
}

var nextLink = regexp.MustCompile(`href="([^"]+)" rel="next"`)

// pages asks for each page for the first time, and finds what follows each list.
func (v *viewer) pages(ctx context.Context) (pages []PageTimes, err error) {
	see := func(name, path string) ([]byte, error) {
		page, body, err := v.get(ctx, path)
		page.Name = name
		pages = append(pages, page)
		return body, err
	}
	add := func(name, path string) error {
		body, err := see(name, path)
		if next := nextLink.FindSubmatch(body); err == nil && next != nil {
			_, err = see(name+", next", html.UnescapeString(string(next[1])))
		}
		return err
	}
	for _, page := range dashboardPages {
		if err := add(page.name, page.path); err != nil {
			return nil, err
		}
	}
	for _, item := range dashboardItems {
		var id string
		if err := v.pool.QueryRow(ctx, "SELECT ("+item.query+")::text").Scan(&id); err != nil {
			return nil, fmt.Errorf("find %s: %w", item.name, err)
		}
		if err := add(item.name, fmt.Sprintf(item.path, id)); err != nil {
			return nil, err
		}
	}
	return pages, nil
}
