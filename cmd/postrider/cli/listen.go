package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/local"
	"postrider/cmd/postrider/terminal"
)

// ListenCmd is listen.
type ListenCmd struct {
	rest.ServerFlags
	Listen    string   `help:"Address to listen on; a taken port falls to a free one." default:"127.0.0.1:7484"`
	ForwardTo string   `help:"Hand each request on to this URL, and its answer back." xor:"answer" placeholder:"URL"`
	Answer    []string `help:"Answer with these statuses, one request after another; the last one stays." xor:"answer" placeholder:"STATUS"`
	Verbose   bool     `short:"v" help:"Print bodies, too."`
	Output    string   `short:"o" help:"table (lines for a person), json (one object for each event) or yaml (one document for each)." enum:"table,json,yaml" default:"table"`
	ReadyFile string   `help:"Written (JSON) when it answers." placeholder:"FILE"`

	Topic               string   `help:"Make an event subscription on this topic, and delete it at the end." placeholder:"NAME"`
	Name                string   `help:"Its name (default: listen- and something random)." placeholder:"NAME"`
	PublicURL           string   `name:"public-url" help:"How the service reaches this program, where it is on another machine." placeholder:"URL"`
	IncludedEventTypes  []string `help:"Only events of these types." placeholder:"TYPE"`
	AdvancedFilter      []string `sep:"none" help:"As of subscription create." placeholder:"'KEY OPERATOR VALUE …'"`
	EventDeliverySchema string   `help:"EventGridSchema, CloudEventSchemaV1_0 or CustomInputSchema, in any case." placeholder:"SCHEMA"`
	Policy              string   `help:"Retry policy." placeholder:"NAME"`
}

// Help is shown by listen --help.
func (ListenCmd) Help() string {
	return `Both validation handshakes are answered. With --topic the service has to be allowed to call this machine: ` +
		`postrider dev is, serve needs
--allow-cidr. The event subscription expires after an hour if this program is killed.

Examples:
  postrider listen --topic demo
  postrider listen --topic orders --forward-to http://localhost:3000/hook -v
  postrider listen --topic orders --answer 503,503,200 --policy ga-2019
  postrider listen --listen 0.0.0.0:8080 -o json > events.ndjson`
}

// Run executes listen until ctx ends.
func (c *ListenCmd) Run(ctx context.Context) error {
	l, err := c.listener()
	if err != nil {
		return err
	}
	notes := io.Writer(os.Stdout)
	if c.Output != "table" {
		notes = os.Stderr
	}
	socket, err := local.ListenOrFree(ctx, c.Listen, notes)
	if err != nil {
		return err
	}
	base := "http://" + local.Reachable(socket.Addr())
	fmt.Fprintf(notes, "Listening at %s, %s. Ctrl-C ends it.\n", base, c.behavior())
	// what is under way at the end still finds its endpoint
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() {
		defer close(served)
		if err := l.serve(serving, socket); err != nil {
			served <- err
		}
	}()
	defer func() {
		stop()
		for range served { // until it is closed
		}
	}()
	temporary, err := c.subscribe(ctx, base, notes)
	if err != nil {
		return err
	}
	defer temporary.remove(notes, l.farewell)
	if err := local.WriteReadyFile(c.ReadyFile, local.ReadyInfo{Sink: base}); err != nil {
		return err
	}
	return temporary.keep(ctx, served)
}

func (c *ListenCmd) behavior() string {
	switch {
	case c.ForwardTo != "":
		return "forwarding to " + c.ForwardTo
	case len(c.Answer) > 0:
		return "answering " + strings.Join(c.Answer, ", ")
	}
	return "answering 200"
}

func (c *ListenCmd) listener() (*listener, error) {
	l := &listener{
		forwardTo: c.ForwardTo, verbose: c.Verbose, out: terminal.NewPrinter(os.Stdout), form: c.Output,
		farewell: make(chan struct{}),
	}
	for _, text := range c.Answer {
		status, err := strconv.Atoi(text)
		if err != nil || status < 200 || status > 599 {
			return nil, terminal.Usagef("--answer %q: a status is a number from 200 to 599", text)
		}
		l.answers = append(l.answers, status)
	}
	if c.ForwardTo != "" {
		u, err := url.Parse(c.ForwardTo)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, terminal.Usagef("--forward-to %q: not a URL such as http://localhost:3000/hook", c.ForwardTo)
		}
		l.client = &http.Client{Timeout: forwardTimeout, CheckRedirect: rest.NoRedirect}
	}
	return l, nil
}

const (
	// forwardTimeout is longer than any policy waits: the service gives up first, and says so.
	forwardTimeout = 4 * time.Minute
	// listenGrace is what requests in progress get at the end, and what the service gets to say that it has deleted the
	// event subscription.
	listenGrace = time.Second
	// maxReceived is far more than a batch can have (1,024 kB and one event of 1 MiB).
	maxReceived = 8 << 20
	// maxForwarded is what of an answer is handed back; the service keeps 4 KiB of it.
	maxForwarded = 64 << 10
)

// listener receives, prints, answers and forwards.
type listener struct {
	answers   []int
	forwardTo string
	client    *http.Client // nil: nothing is forwarded
	verbose   bool
	form      string // of the output: table, json or yaml
	out       *terminal.Printer
	requests  atomic.Int64 // without handshakes
	// farewell is closed when the service has said that the event subscription was deleted.
	farewell  chan struct{}
	farewells sync.Once
}

func (l *listener) serve(ctx context.Context, socket net.Listener) error {
	srv := &http.Server{Handler: l, ReadHeaderTimeout: 5 * time.Second}
	closed := make(chan struct{})
	stopped := context.AfterFunc(ctx, func() {
		defer close(closed)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenGrace)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close()
		}
	})
	defer stopped()
	if err := srv.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("receive events: %w", err)
	}
	<-closed
	return nil
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
		if l.form == "table" {
			l.out.Line(terminal.Clock(began) + " <-> validation handshake answered")
		}
		return
	}
	got := receivedRequest{at: began, request: r, body: body, events: eventsIn(r.Header, body)}
	l.arrived(&got)
	answer := l.answer(r, body)
	for name, values := range answer.header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.status)
	if answer.status != http.StatusNoContent && answer.status != http.StatusNotModified {
		_, _ = w.Write(answer.body) // the caller may be gone
	}
	l.answered(&got, answer, time.Since(began))
	if r.Header.Get("Aeg-Event-Type") == "SubscriptionDeletion" {
		l.farewells.Do(func() { close(l.farewell) })
	}
}

// receivedRequest is one request.
type receivedRequest struct {
	at      time.Time
	request *http.Request
	body    []byte
	events  []json.RawMessage
}

// listenAnswer is what is answered; why is told where a forward failed.
type listenAnswer struct {
	status int
	header http.Header
	body   []byte
	why    string
}

func (l *listener) answer(r *http.Request, body []byte) listenAnswer {
	n := int(l.requests.Add(1))
	switch {
	case l.client != nil:
		answer, err := l.forward(r, body)
		if err != nil {
			return listenAnswer{status: http.StatusBadGateway, why: err.Error()}
		}
		return answer
	case len(l.answers) > 0:
		return listenAnswer{status: l.answers[min(n, len(l.answers))-1]}
	}
	return listenAnswer{status: http.StatusOK}
}

// forward sends the same request on, but for what belongs to one connection (RFC 9110, section 7.6.1).
func (l *listener) forward(r *http.Request, body []byte) (listenAnswer, error) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, l.forwardTo, bytes.NewReader(body))
	if err != nil {
		return listenAnswer{}, err
	}
	out.Header = r.Header.Clone()
	for _, name := range []string{
		"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Proxy-Connection", "Accept-Encoding",
	} {
		out.Header.Del(name)
	}
	response, err := l.client.Do(out) //nolint:gosec // it goes where whoever runs the program wants it to
	if err != nil {
		return listenAnswer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	answer := listenAnswer{status: response.StatusCode, header: http.Header{}}
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if values := response.Header.Values(name); len(values) > 0 {
			answer.header[name] = values
		}
	}
	answer.body, err = io.ReadAll(io.LimitReader(response.Body, maxForwarded))
	return answer, err
}
