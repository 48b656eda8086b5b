package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"postrider/catalog/spec"
	"postrider/cmd/postrider/cli/management"
	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/local"
	"postrider/cmd/postrider/terminal"
)

// ListenCmd is listen.
type ListenCmd struct {
	rest.ServerFlags
	Listen    string   `help:"Address to listen on; a free port is chosen if this one is taken." default:"127.0.0.1:7484"`
	ForwardTo *url.URL `help:"Forward each request to this URL, and return its response." xor:"respond" placeholder:"URL"`
	Respond   []int    `help:"Respond with these statuses, one request after another; the last one stays." xor:"respond" placeholder:"STATUS"`
	Verbose   bool     `short:"v" help:"Print bodies, too."`
	Output    string   `short:"o" help:"table (lines for a person), json (one object for each event) or yaml (one document for each)." enum:"table,json,yaml" default:"table"`
	ReadyFile string   `help:"File (JSON) to write when it is ready." placeholder:"FILE"`

	Topic                 string `help:"Create an event subscription on this topic, and delete it at the end." placeholder:"NAME"`
	Name                  string `help:"Its name (default: listen- and a random suffix)." placeholder:"NAME"`
	PublicURL             string `name:"public-url" help:"URL at which the service reaches this program, if it is on another machine." placeholder:"URL"`
	management.TableFlags        // settings of the event subscription
}

// NewListenCmd has the flags of the settings that the event subscription may have.
func NewListenCmd() (c ListenCmd) {
	var table []spec.Setting
	for _, name := range []string{
		"filter.includedEventTypes", "filter.advancedFilters", "eventDeliverySchema", "retryPolicy.policy",
	} {
		table = append(table, *spec.Find(spec.Subscription, name))
	}
	c.TableFlags = management.NewTableFlags(table, "")
	return c
}

// Help is shown by listen --help.
func (ListenCmd) Help() string {
	return `It answers both validation handshakes. With --topic the service must be allowed to call this machine:
postrider dev is, serve needs --allow-cidr. The event subscription expires after an hour if this program is killed.

Examples:
  postrider listen --topic demo
  postrider listen --topic orders --forward-to http://localhost:3000/hook -v
  postrider listen --topic orders --respond 503,503,200 --policy ga-2019
  postrider listen --listen 0.0.0.0:8080 -o json > events.ndjson`
}

// Run executes listen until ctx ends.
func (c *ListenCmd) Run(ctx context.Context) error {
	behavior, err := c.check()
	if err != nil {
		return err
	}
	notes := terminal.Either(c.Output == "table", os.Stdout, os.Stderr)
	socket, err := local.ListenOrFree(ctx, c.Listen, notes)
	if err != nil {
		return err
	}
	base := "http://" + local.Reachable(socket.Addr())
	fmt.Fprintf(notes, "Listening at %s, %s. Ctrl-C ends it.\n", base, behavior)
	l := &listener{ListenCmd: c, farewell: make(chan struct{}, 1)}
	srv, served := &http.Server{Handler: l, ReadHeaderTimeout: 5 * time.Second}, make(chan error, 1)
	go func() { served <- srv.Serve(socket) }()
	defer func() { // requests in progress at the end still find their endpoint
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenGrace)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close()
		}
	}()
	var temporary *temporary
	if c.Topic != "" {
		if temporary, err = c.subscribe(ctx, base); err != nil {
			return err
		}
		fmt.Fprintf(notes, "Event subscription %s of topic %s delivers here; it is deleted at the end.\n", temporary.name,
			c.Topic)
		defer temporary.remove(notes, l.farewell)
	}
	if err := local.WriteReadyFile(c.ReadyFile, local.ReadyInfo{Sink: base}); err != nil {
		return err
	}
	return temporary.keep(ctx, served)
}

// check validates the flags and returns what they do with each request, in words.
func (c *ListenCmd) check() (behavior string, err error) {
	settings, err := c.Settings()
	if err != nil {
		return "", err
	}
	if c.Topic == "" && (c.Name != "" || c.PublicURL != "" || len(settings) > 0) {
		return "", terminal.Usagef("settings of an event subscription require --topic")
	}
	if u := c.ForwardTo; u != nil {
		if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return "", terminal.Usagef("--forward-to %q: not a URL such as http://localhost:3000/hook", u)
		}
		return "forwarding to " + u.String(), nil
	}
	if len(c.Respond) == 0 {
		c.Respond = []int{http.StatusOK}
	}
	statuses := make([]string, len(c.Respond))
	for i, status := range c.Respond {
		if statuses[i] = strconv.Itoa(status); status < 200 || status > 599 {
			return "", terminal.Usagef("--respond %d: a status is a number from 200 to 599", status)
		}
	}
	return "answering " + strings.Join(statuses, ", "), nil
}

const (
	// forwardTimeout is longer than any policy waits: the service stops waiting first, and reports it.
	forwardTimeout = 4 * time.Minute
	// listenGrace is how long the end waits for requests in progress, and for the service to report that it has deleted
	// the event subscription.
	listenGrace = time.Second
	// maxReceived is far more than a batch can have (1,024 kB and one event of 1 MiB).
	maxReceived = 8 << 20
)

// listener receives and prints requests, and responds to them or forwards them.
type listener struct {
	*ListenCmd
	requests atomic.Int64 // without handshakes
	// farewell gets a value when the service has reported that it has deleted the event subscription.
	farewell chan struct{}
}

// ServeHTTP implements http.Handler.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReceived))
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	if local.AnswerHandshake(w, r, body) {
		if l.Output == "table" {
			fmt.Println(terminal.Clock(began) + " <-> validation handshake answered")
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
	l.answered(&got, failure, time.Since(began))
	if got.header.Get("Aeg-Event-Type") == "SubscriptionDeletion" {
		select {
		case l.farewell <- struct{}{}:
		default:
		}
	}
}

// forward sends the request on and returns the status of its response, or 502 and why there is none.
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
