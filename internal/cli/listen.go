package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"postrider/internal/catalog/spec"
	"postrider/internal/cli/config"
	"postrider/internal/cli/rest"
	"postrider/internal/local"
	"postrider/internal/terminal"
)

// ListenCmd is listen.
type ListenCmd struct {
	rest.ServerFlags
	Listen    string   `help:"Address to listen on; a free port is chosen if this one is taken." default:"127.0.0.1:7484"`
	ForwardTo *url.URL `help:"Forward each request to this URL, and return its response." xor:"respond" placeholder:"URL"`
	Respond   []int    `help:"Respond to one request after another with these statuses; the last one is repeated." xor:"respond" placeholder:"STATUS"`
	Verbose   bool     `short:"v" help:"Print bodies, too."`
	Output    string   `short:"o" help:"table (lines for a person), json (one object for each event) or yaml (one document for each)." enum:"table,json,yaml" default:"table"`
	ReadyFile string   `help:"File (JSON) to write when it is ready." placeholder:"FILE"`

	Topic             string `help:"Create an event subscription of this topic, and delete it at the end." placeholder:"NAME"`
	Name              string `help:"Its name (default: listen- and a random suffix)." placeholder:"NAME"`
	PublicURL         string `name:"public-url" help:"URL at which the service reaches this program, if it is on another machine." placeholder:"URL"`
	config.TableFlags        // settings of the event subscription
}

// newListenCmd returns the verb with flags for some settings of the event subscription.
func newListenCmd() (c ListenCmd) {
	var table []spec.Setting
	for _, name := range []string{
		"filter.includedEventTypes", "filter.advancedFilters", "eventDeliverySchema", "retryPolicy.policy",
	} {
		table = append(table, *spec.Find(spec.Subscription, name))
	}
	c.TableFlags = config.NewTableFlags(table, "")
	return c
}

// Help is shown by listen --help.
func (ListenCmd) Help() string {
	return `It responds to both validation handshakes. With --topic the service must be allowed to call this machine:
postrider dev is, serve needs --allow-cidr. If this program is killed, the event subscription expires after an hour.

Examples:
  postrider listen --topic demo
  postrider listen --topic orders --forward-to http://localhost:3000/hook -v
  postrider listen --topic orders --respond 503,503,200 --policy ga-2019
  postrider listen --listen 0.0.0.0:8080 -o json > events.ndjson`
}

// Run executes listen until ctx ends.
func (c *ListenCmd) Run(ctx context.Context, std terminal.Streams) error {
	settings, behavior, err := c.check(std.In)
	if err != nil {
		return err
	}
	notes := terminal.Either(c.Output == "table", std.Out, std.Err)
	socket, err := local.ListenOrFree(ctx, c.Listen, notes)
	if err != nil {
		return err
	}
	base := "http://" + local.Reachable(socket.Addr())
	fmt.Fprintf(notes, "Listening at %s, %s. Press Ctrl-C to stop.\n", base, behavior)
	l := &listener{ListenCmd: c, out: std.Out, deleted: make(chan struct{}, 1)}
	srv, served := &http.Server{Handler: l, ReadHeaderTimeout: 5 * time.Second}, make(chan error, 1)
	go func() { served <- srv.Serve(socket) }()
	defer func() { // requests in progress still get their response
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenGrace)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close()
		}
	}()
	var temporary *temporary
	if c.Topic != "" {
		if temporary, err = c.subscribe(ctx, std, base, settings); err != nil {
			return err
		}
		fmt.Fprintf(notes, "Event subscription %s of topic %s delivers here; it is deleted at the end.\n", temporary.name,
			c.Topic)
		defer temporary.remove(notes, l.deleted)
	}
	if err := local.WriteReadyFile(c.ReadyFile, local.ReadyInfo{Sink: base}); err != nil {
		return err
	}
	return temporary.keep(ctx, served)
}

// check validates the flags. It returns the settings of the event subscription, and what the flags do with requests.
func (c *ListenCmd) check(stdin io.Reader) (settings rest.Object, behavior string, err error) {
	if settings, err = c.Settings(stdin); err != nil {
		return nil, "", err
	}
	if c.Topic == "" && (c.Name != "" || c.PublicURL != "" || len(settings) > 0) {
		return nil, "", terminal.Usagef("settings of an event subscription require --topic")
	}
	if u := c.ForwardTo; u != nil {
		if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, "", terminal.Usagef("--forward-to %q: not a URL such as http://localhost:3000/hook", u)
		}
		return settings, "forwarding to " + u.String(), nil
	}
	if len(c.Respond) == 0 {
		c.Respond = []int{http.StatusOK}
	}
	statuses := make([]string, len(c.Respond))
	for i, status := range c.Respond {
		if statuses[i] = strconv.Itoa(status); status < 200 || status > 599 {
			return nil, "", terminal.Usagef("--respond %d: a status is a number from 200 to 599", status)
		}
	}
	return settings, "responding " + strings.Join(statuses, ", "), nil
}

const (
	forwardTimeout = 4 * time.Minute // longer than the ack timeout of any policy
	listenGrace    = time.Second     // for requests in progress at the end, and for the event about the deletion
	maxReceived    = 8 << 20         // more than any batch (1,024 kB and one event of 1 MiB)
)

// listener receives and prints requests, and responds to them or forwards them.
type listener struct {
	*ListenCmd
	out      io.Writer
	requests atomic.Int64  // without handshakes
	deleted  chan struct{} // receives a value when the event about the event subscription's deletion has arrived
}

// ServeHTTP implements http.Handler.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReceived))
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	if local.RespondToHandshake(w, r, body) {
		if l.Output == "table" {
			fmt.Fprintln(l.out, terminal.Clock(began)+" <-> responded to the validation handshake")
		}
		return
	}
	got := receivedRequest{at: began, header: r.Header.Clone(), body: body, events: eventsIn(r.Header, body)}
	l.arrived(&got)
	n, failure := int(l.requests.Add(1)), ""
	if l.ForwardTo != nil {
		got.status, failure = l.forward(w, r, body)
	} else {
		got.status = l.Respond[min(n, len(l.Respond))-1]
		w.WriteHeader(got.status)
	}
	l.responded(&got, failure, time.Since(began))
	if got.header.Get("Aeg-Event-Type") == "SubscriptionDeletion" {
		select {
		case l.deleted <- struct{}{}:
		default:
		}
	}
}

// forward forwards the request and returns the status of the response, or 502 and the error.
func (l *listener) forward(w http.ResponseWriter, r *http.Request, body []byte) (status int, failure string) {
	ctx, cancel := context.WithTimeout(r.Context(), forwardTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.Out.URL, p.Out.Host = l.ForwardTo, "" },
		ModifyResponse: func(response *http.Response) error {
			status = response.StatusCode
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			status, failure = http.StatusBadGateway, err.Error()
			w.WriteHeader(status)
		},
	}
	proxy.ServeHTTP(w, r)
	return status, failure
}

type receivedRequest struct {
	at     time.Time
	header http.Header
	body   []byte
	events []json.RawMessage
	status int
}

// eventsIn returns the events of a request: an array, one object, or a CloudEvent in binary mode with attributes in
// headers. Any other body counts as one nil event.
func eventsIn(header http.Header, body []byte) (list []json.RawMessage) {
	trimmed := bytes.TrimSpace(body)
	switch {
	case header.Get("Ce-Id") != "":
		return []json.RawMessage{binaryEvent(header, trimmed)}
	case json.Unmarshal(trimmed, &list) == nil:
		return list
	case json.Valid(trimmed):
		return []json.RawMessage{trimmed}
	}
	return []json.RawMessage{nil}
}

func binaryEvent(header http.Header, data []byte) json.RawMessage {
	e := rest.Object{}
	for name, values := range header {
		if attribute, ok := strings.CutPrefix(strings.ToLower(name), "ce-"); ok {
			e[attribute] = values[0]
			// CloudEvents, HTTP Protocol Binding 1.0.2, section 3.1.3.2
			if plain, err := url.PathUnescape(values[0]); err == nil {
				e[attribute] = plain
			}
		}
	}
	if json.Valid(data) {
		e["data"] = json.RawMessage(data)
	}
	encoded, _ := terminal.EncodePlainly(e) // of texts and valid JSON
	return encoded
}

// receivedEvent is the form of an event for -o json.
type receivedEvent struct {
	At           time.Time       `json:"at"`
	Subscription string          `json:"subscription"`
	Attempt      int             `json:"attempt"`
	EventID      string          `json:"eventId"`
	EventType    string          `json:"eventType"`
	Subject      string          `json:"subject"`
	Status       int             `json:"status"`
	DurationMs   float64         `json:"durationMs"`
	Event        json.RawMessage `json:"event"`
}

func (r *receivedRequest) described(took time.Duration) (list []receivedEvent) {
	earlier, _ := strconv.Atoi(r.header.Get("Aeg-Delivery-Count"))
	for _, event := range r.events {
		var n struct{ ID, Type, EventType, Subject string }
		_ = json.Unmarshal(event, &n)
		list = append(list, receivedEvent{
			At: r.at.UTC(), Subscription: r.header.Get("Aeg-Subscription-Name"), Attempt: earlier + 1, EventID: n.ID,
			EventType: cmp.Or(n.Type, n.EventType), Subject: n.Subject, Status: r.status, DurationMs: millis(took), Event: event,
		})
	}
	return list
}

// arrived prints a line for each event.
func (l *listener) arrived(got *receivedRequest) {
	if l.Output != "table" {
		return
	}
	var lines strings.Builder
	for _, e := range got.described(0) {
		fmt.Fprintf(&lines, "%s --> %s %s %s", terminal.Clock(got.at), orDash(e.EventType), orDash(e.Subject),
			orDash(e.EventID))
		if e.Subscription != "" {
			fmt.Fprintf(&lines, " (%s, attempt %d)", terminal.Cell(e.Subscription), e.Attempt)
		}
		lines.WriteByte('\n')
	}
	if l.Verbose {
		lines.WriteString(indented(got.body) + "\n")
	}
	fmt.Fprint(l.out, lines.String()) // in one write: requests may be concurrent
}

func orDash(s string) string { return cmp.Or(terminal.Cell(s), "-") }

// indented formats a body for a terminal.
func indented(body []byte) string {
	var pretty bytes.Buffer
	if json.Indent(&pretty, body, "    ", "  ") != nil {
		return "    " + terminal.PlainLines(string(body))
	}
	return "    " + terminal.EscapeControls(pretty.String())
}

// responded prints the response: a line, or an object for each event. failure is the error of forwarding.
func (l *listener) responded(got *receivedRequest, failure string, took time.Duration) {
	if l.Output == "table" {
		line := fmt.Sprintf("%s <-- %d %s in %.1f ms", terminal.Clock(time.Now()), got.status, http.StatusText(got.status),
			millis(took))
		if l.ForwardTo != nil {
			line += " from " + l.ForwardTo.String()
		}
		if failure != "" {
			line += ": " + terminal.OneLine(failure)
		}
		fmt.Fprintln(l.out, line)
		return
	}
	var lines strings.Builder
	for _, event := range got.described(took) {
		text, _ := terminal.EncodeLine(l.Output, event) // of texts, numbers and valid JSON
		lines.WriteString(text)
	}
	fmt.Fprint(l.out, lines.String()) // in one write: requests may be concurrent
}

const (
	temporaryLife = time.Hour // until the event subscription of a killed program expires
	renewEvery    = 15 * time.Minute
	removeTimeout = 5 * time.Second
)

// temporary is an event subscription that this program deletes at its end.
type temporary struct {
	client    *rest.Client
	stderr    io.Writer
	name, url string
}

// subscribe creates the event subscription. The listener must already respond to the handshake.
func (c *ListenCmd) subscribe(
	ctx context.Context, std terminal.Streams, base string, settings rest.Object,
) (*temporary, error) {
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	t := &temporary{stderr: std.Err, client: client, name: cmp.Or(c.Name, "listen-"+uuid.NewString()[:8])}
	t.url = rest.SubscriptionURL(c.Topic, t.name)
	settings["endpointUrl"] = cmp.Or(c.PublicURL, base+"/")
	settings["expirationTimeUtc"], settings["labels"] = inAnHour(), []string{"postrider listen"}
	err = client.Call(ctx, http.MethodPut, t.url, settings, nil, "If-None-Match", "*")
	if rest.IsInvalid(err, "endpointUrl") {
		err = fmt.Errorf("%w\nif the service may not call this machine, start it with --allow-cidr and this machine's "+
			"address", err)
	}
	return t, err
}

func inAnHour() string { return time.Now().Add(temporaryLife).UTC().Format(time.RFC3339) }

// keep extends the event subscription, unless it is nil, until ctx ends or the listener fails.
func (t *temporary) keep(ctx context.Context, served <-chan error) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return fmt.Errorf("receive events: %w", err)
		case <-tick.C:
		}
		if t == nil {
			continue
		}
		extended := rest.Object{"expirationTimeUtc": inAnHour()}
		if err := t.client.Call(ctx, http.MethodPatch, t.url, extended, nil); err != nil && ctx.Err() == nil {
			fmt.Fprintf(t.stderr, "postrider: event subscription %s could not be extended: %s\n", t.name,
				terminal.PlainLines(err.Error()))
		}
	}
}

// remove deletes the event subscription, and waits up to listenGrace for the event about the deletion.
func (t *temporary) remove(notes io.Writer, deleted <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	err := t.client.Call(ctx, http.MethodDelete, t.url, nil, nil)
	if err != nil && !rest.IsStatus(err, http.StatusNotFound) {
		fmt.Fprintf(t.stderr, "postrider: event subscription %s was not deleted: %s\n", t.name,
			terminal.PlainLines(err.Error()))
		return
	}
	fmt.Fprintf(notes, "Event subscription %s was deleted.\n", t.name)
	select {
	case <-deleted:
	case <-time.After(listenGrace):
	}
}
